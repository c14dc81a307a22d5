//! SCRAM-SHA-256 (RFC 5802, RFC 7677): the server's side.
//!
//! ```text
//! client  n,,n=,r=nonce             ─►
//!                                   ◄─  r=nonce..more,s=salt,i=rounds    server
//! client  c=biws,r=nonce..more,p=proof ─►
//!                                   ◄─  v=signature                      server
//! ```

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::users::{self, Verifier};

pub const MECHANISM: &str = "SCRAM-SHA-256";

/// An exchange whose first message was answered.
#[derive(Debug)]
pub struct Exchange {
    verifier: Verifier,
    header: String,
    nonce: String,
    /// What both have said so far.
    said: String,
}

impl Exchange {
    /// Answers the client's first message; `None`: it is none.
    pub fn begin(verifier: Verifier, first: &str) -> Option<(Self, String)> {
        let more = STANDARD.encode(users::random::<18>().ok()?);
        Self::begin_with(verifier, first, &more)
    }

    fn begin_with(verifier: Verifier, first: &str, more: &str) -> Option<(Self, String)> {
        let mut parts = first.splitn(3, ',');
        let (binding, authorized, bare) = (parts.next()?, parts.next()?, parts.next()?);
        // Binding to the channel is not offered, and nobody asks in another's name.
        (matches!(binding, "n" | "y") && authorized.is_empty()).then_some(())?;
        let asked = bare.split(',').find_map(|part| part.strip_prefix("r="))?;
        (!asked.is_empty()).then_some(())?;
        let nonce = format!("{asked}{more}");
        let salt = STANDARD.encode(&verifier.salt);
        let answer = format!("r={nonce},s={salt},i={}", verifier.iterations);
        let header = STANDARD.encode(format!("{binding},{authorized},"));
        let said = format!("{bare},{answer}");
        Some((Self { verifier, header, nonce, said }, answer))
    }

    /// Answers the client's last message; `None`: it does not know the password.
    pub fn end(self, last: &str) -> Option<String> {
        let (without_proof, proof) = last.rsplit_once(",p=")?;
        let mut parts = without_proof.split(',');
        let (header, nonce) =
            (parts.next()?.strip_prefix("c=")?, parts.next()?.strip_prefix("r=")?);
        (header == self.header && nonce == self.nonce).then_some(())?;
        let said = format!("{},{without_proof}", self.said);
        let signature = self.verifier.answer(said.as_bytes(), &STANDARD.decode(proof).ok()?)?;
        Some(format!("v={}", STANDARD.encode(signature)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::users::verifier_of;

    const FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const MORE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const LAST: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";

    fn exchange(password: &str) -> Exchange {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let (exchange, answer) =
            Exchange::begin_with(verifier_of(password, &salt), FIRST, MORE).unwrap();
        assert_eq!(
            answer,
            format!("r=rOprNGfwEbeRWgbNEkqO{MORE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
        );
        exchange
    }

    #[test]
    fn the_example_of_rfc_7677_is_answered() {
        let answer = exchange("pencil").end(LAST);
        assert_eq!(answer.as_deref(), Some("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
    }

    #[test]
    fn nothing_else_is() {
        assert_eq!(exchange("pen").end(LAST), None);
        for wrong in [
            LAST.replace("c=biws", "c=eSws"),
            LAST.replace("r=rO", "r=rP"),
            LAST.replace("p=dH", "p=eH"),
            LAST.replace("p=dHzbZapW", "p="),
            "c=biws".to_string(),
            String::new(),
        ] {
            assert_eq!(exchange("pencil").end(&wrong), None, "{wrong}");
        }
        let verifier = || verifier_of("pencil", &[0; 16]);
        for first in ["", "n,,", "n,,n=,r=", "p=tls-unique,,n=,r=a", "n,a=bob,n=,r=a", "x"] {
            assert!(Exchange::begin(verifier(), first).is_none(), "{first}");
        }
    }
}
