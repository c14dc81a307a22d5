//! Versions of the two sides of a connection, and of a message.
//!
//! Plans have programs in them, and mean something to their version alone. So whoever connects says its versions in the name of its
//! client (HTTP's `user-agent`), and the scheduler refuses others before anything else; a message that came some other way
//! has them at its beginning.

use headrace_ir::PROGRAM_VERSION;
use tonic::metadata::MetadataMap;

/// Changes whenever a message of this crate changes.
pub const PROTOCOL_VERSION: u32 = 1;

/// The program's name in the name of a client.
const PRODUCT: &str = "headrace-cluster";

/// What is compatible with nothing but itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// Of messages.
    pub protocol: u32,
    /// Of programs within them.
    pub program: u32,
}

impl Versions {
    /// Those of this program.
    pub const OWN: Self = Self { protocol: PROTOCOL_VERSION, program: PROGRAM_VERSION };

    /// Refuses others.
    ///
    /// # Errors
    /// Both versions in words; `who` has the other ones.
    pub fn check(self, who: &str) -> Result<(), String> {
        match self == Self::OWN {
            true => Ok(()),
            false => Err(format!(
                "{who} has protocol {} and programs {}, this side has protocol {} and programs {}\n\
                 hint: use the same version of headrace-cluster everywhere",
                self.protocol,
                self.program,
                Self::OWN.protocol,
                Self::OWN.program
            )),
        }
    }

    /// The name of a client of these versions.
    pub fn client_name(self) -> String {
        let Self { protocol, program } = self;
        format!("{PRODUCT}/{} protocol/{protocol} programs/{program}", env!("CARGO_PKG_VERSION"))
    }

    /// Those in the name of a client; `None`: it is no client of ours.
    fn of_client(name: &str) -> Option<Self> {
        let number = |key: &str| {
            let value = name.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('/'));
            value?.parse().ok()
        };
        name.strip_prefix(PRODUCT)?;
        Some(Self { protocol: number("protocol")?, program: number("programs")? })
    }
}

/// Refuses a request of another version, or of somebody else's program.
///
/// # Errors
/// What it is, and what it should be.
pub fn check_client(request: &MetadataMap) -> Result<(), String> {
    let name = request.get("user-agent").and_then(|name| name.to_str().ok()).unwrap_or_default();
    match Versions::of_client(name) {
        Some(versions) => versions.check(name.split(' ').next().unwrap_or(PRODUCT)),
        None => {
            // The rest may have a proof of the secret in it.
            let product = name.split(' ').next().unwrap_or_default();
            Err(format!("{product:?} is no program of Headrace's cluster"))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn of_client(name: &str) -> Result<(), String> {
        let mut request = MetadataMap::new();
        request.insert("user-agent", name.parse().unwrap());
        check_client(&request)
    }

    #[test]
    fn only_the_same_versions_are_served() {
        let own = Versions::OWN;
        // The library appends its own.
        of_client(&format!("{} tonic/0.14", own.client_name())).unwrap();
        let older = Versions { protocol: own.protocol - 1, ..own };
        let cause = of_client(&older.client_name()).unwrap_err();
        assert!(cause.contains("protocol 0") && cause.contains("hint: use the same"), "{cause}");
        let newer = Versions { program: own.program + 1, ..own };
        assert!(of_client(&newer.client_name()).is_err());
        for name in ["tonic/0.14.9", "", "headrace-cluster/1", "headrace-cluster protocol/x"] {
            assert!(of_client(name).unwrap_err().contains("no program"), "{name}");
        }
        assert!(check_client(&MetadataMap::new()).is_err());
    }
}
