//! Users, and verifiers of their passwords.
//!
//! ```text
//! ada:SCRAM-SHA-256$4096:salt$StoredKey:ServerKey      a line, salt and keys in base64 (RFC 5802, as in pg_authid)
//! ```
//!
//! A verifier tells whether a password is the right one, and is of no use to log in with.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac, pbkdf2};

const ITERATIONS: NonZeroU32 = NonZeroU32::MIN.saturating_add(4095);
const SALT_BYTES: usize = 16;
const KIND: &str = "SCRAM-SHA-256$";

/// Some clients leave the padding out.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What is known of a password.
#[derive(Clone, Debug)]
pub struct Verifier {
    pub iterations: NonZeroU32,
    pub salt: Vec<u8>,
    stored_key: Vec<u8>,
    server_key: Vec<u8>,
    /// Nobody's: no password is the right one.
    is_nobodys: bool,
}

/// Those who may ask.
#[derive(Debug)]
pub struct Users {
    by_name: HashMap<String, Verifier>,
    /// Those who may make functions in CUDA.
    cuda_functions: HashSet<String>,
    /// Key for the salts of unknown names, for tokens, and for the passwords of `seen`.
    secret: [u8; 32],
    /// The last right password of each user, signed: each request of HTTP brings it, and to derive its keys takes
    /// milliseconds by intention.
    seen: Mutex<HashMap<String, hmac::Tag>>,
}

impl Users {
    /// Those of a file.
    pub fn read(path: &Path) -> Result<Self, String> {
        let place = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| format!("{place}: {error}"))?;
        let mut users = HashMap::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, verifier) = parsed(line).ok_or_else(|| {
                format!(
                    "{place}, line {}: no user\n\nhint: headrace-server user NAME prints such a line",
                    number + 1
                )
            })?;
            if users.insert(name.clone(), verifier).is_some() {
                return Err(format!("{place}, line {}: {name} is there twice", number + 1));
            }
        }
        match users.is_empty() {
            true => Err(format!("{place}: there are no users")),
            false => Ok(Self {
                by_name: users,
                cuda_functions: HashSet::new(),
                secret: random()?,
                seen: Mutex::default(),
            }),
        }
    }

    /// Lets these make functions in CUDA.
    ///
    /// # Errors
    /// A name that no user has.
    pub fn with_cuda_functions(self, names: &[String]) -> Result<Self, String> {
        match names.iter().find(|name| !self.by_name.contains_key(*name)) {
            Some(name) => Err(format!(
                "--cuda-functions {name}: there is no such user\n\nhint: headrace-server user {name} prints a line for the file of --users"
            )),
            None => Ok(Self { cuda_functions: names.iter().cloned().collect(), ..self }),
        }
    }

    /// Whether somebody may make functions in CUDA.
    pub fn may_make_functions(&self, name: &str) -> bool {
        self.cuda_functions.contains(name)
    }

    /// The verifier of a name. One that nobody has has a verifier, too, the same each time: whoever asks does not learn
    /// which names there are.
    pub fn verifier(&self, name: &str) -> Verifier {
        if let Some(known) = self.by_name.get(name) {
            return known.clone();
        }
        let salt = hmac::sign(&self.key(), format!("salt of {name}").as_bytes()).as_ref()
            [..SALT_BYTES]
            .to_vec();
        let none = vec![0; digest::SHA256_OUTPUT_LEN];
        let iterations = ITERATIONS;
        Verifier { iterations, salt, stored_key: none.clone(), server_key: none, is_nobodys: true }
    }

    /// Whose `Authorization` header it is: a name and its password (Basic), or a token (Bearer).
    pub fn of_header(&self, value: &str) -> Option<String> {
        let (scheme, rest) = value.split_once(' ')?;
        match scheme.to_ascii_lowercase().as_str() {
            "basic" => {
                let (name, password) = basic(rest)?;
                let is_right = self.was_right(&name, &password)
                    || tokio::task::block_in_place(|| self.is_right(&name, &password));
                is_right.then_some(name)
            }
            "bearer" => self.of_token(rest.trim(), now_s()),
            _ => None,
        }
    }

    /// Whether a password is that of a user. The check takes as long for an unknown name.
    fn is_right(&self, name: &str, password: &str) -> bool {
        let verifier = self.verifier(name);
        let [stored_key, _] = keys(password, &verifier.salt, verifier.iterations);
        let is_right = is_same(&stored_key, &verifier.stored_key) && !verifier.is_nobodys;
        if is_right {
            let signed = hmac::sign(&self.key(), password_of(name, password).as_bytes());
            self.seen.lock().insert(name.to_string(), signed);
        }
        is_right
    }

    /// Whether it is the one that was right before.
    fn was_right(&self, name: &str, password: &str) -> bool {
        let Some(signed) = self.seen.lock().get(name).copied() else { return false };
        let given = password_of(name, password);
        hmac::verify(&self.key(), given.as_bytes(), signed.as_ref()).is_ok()
    }
}

/// What is signed of a password that was right; no token begins so.
fn password_of(name: &str, password: &str) -> String {
    format!("password of {name}:{password}")
}

/// The name and the password of Basic authentication.
fn basic(encoded: &str) -> Option<(String, String)> {
    let text = String::from_utf8(LENIENT.decode(encoded.trim()).ok()?).ok()?;
    let (name, password) = text.split_once(':')?;
    Some((name.to_string(), password.to_string()))
}

/// Seconds since 1970.
pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Tokens of users: a name and until when, signed. They end with this process.
impl Users {
    pub fn token(&self, name: &str, until_s: u64) -> String {
        let text = format!("{until_s}:{name}");
        let signature = hmac::sign(&self.key(), text.as_bytes());
        format!("{}.{}", STANDARD.encode(&text), STANDARD.encode(signature.as_ref()))
    }

    /// Whose token it is, while it lasts.
    pub fn of_token(&self, token: &str, now_s: u64) -> Option<String> {
        let (text, signature) = token.split_once('.')?;
        let (text, signature) = (STANDARD.decode(text).ok()?, STANDARD.decode(signature).ok()?);
        hmac::verify(&self.key(), &text, &signature).ok()?;
        let text = String::from_utf8(text).ok()?;
        let (until_s, name) = text.split_once(':')?;
        let lasts = until_s.parse::<u64>().ok()? > now_s && self.by_name.contains_key(name);
        lasts.then(|| name.to_string())
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.secret)
    }
}

impl Verifier {
    /// What the server signs for a client that has proven to know the password: both sides sign what they have said
    /// (RFC 5802). `None`: it has not.
    pub fn answer(&self, said: &[u8], proof: &[u8]) -> Option<Vec<u8>> {
        let sign = |key: &[u8]| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), said);
        let signature = sign(&self.stored_key);
        let is_long_enough = proof.len() == signature.as_ref().len();
        let client_key: Vec<u8> =
            signature.as_ref().iter().zip(proof).map(|(a, b)| a ^ b).collect();
        let stored_key = digest::digest(&digest::SHA256, &client_key);
        let is_right = is_same(stored_key.as_ref(), &self.stored_key);
        (is_long_enough && is_right && !self.is_nobodys)
            .then(|| sign(&self.server_key).as_ref().to_vec())
    }
}

/// Compares in a time that says nothing of where they differ.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |other, (a, b)| other | (a ^ b)) == 0
}

/// Random bytes of the system's.
pub fn random<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| "the system has no random bytes".to_string())?;
    Ok(bytes)
}

/// The stored key and the server's, of a password.
fn keys(password: &str, salt: &[u8], iterations: NonZeroU32) -> [Vec<u8>; 2] {
    let mut salted = [0; digest::SHA256_OUTPUT_LEN];
    let algorithm = pbkdf2::PBKDF2_HMAC_SHA256;
    // As PostgreSQL does: one that the profile of RFC 4013 forbids stays as it is.
    let prepared = stringprep::saslprep(password).unwrap_or(Cow::Borrowed(password));
    pbkdf2::derive(algorithm, iterations, salt, prepared.as_bytes(), &mut salted);
    let key = hmac::Key::new(hmac::HMAC_SHA256, &salted);
    let client = hmac::sign(&key, b"Client Key");
    let stored = digest::digest(&digest::SHA256, client.as_ref());
    [stored.as_ref().to_vec(), hmac::sign(&key, b"Server Key").as_ref().to_vec()]
}

/// The line of a user.
pub fn line(name: &str, password: &str) -> Result<String, String> {
    if name.is_empty() || name.contains([':', '\n', '#']) {
        return Err(format!("{name:?} is no name of a user: it has no : and no #"));
    }
    if password.is_empty() {
        return Err("a password has characters".to_string());
    }
    Ok(line_of(name, password, &random::<SALT_BYTES>()?))
}

fn line_of(name: &str, password: &str, salt: &[u8]) -> String {
    let [stored, server] = keys(password, salt, ITERATIONS).map(|key| STANDARD.encode(key));
    format!("{name}:{KIND}{ITERATIONS}:{}${stored}:{server}", STANDARD.encode(salt))
}

fn parsed(line: &str) -> Option<(String, Verifier)> {
    let (name, rest) = line.split_once(':')?;
    let (iterations, rest) = rest.strip_prefix(KIND)?.split_once(':')?;
    let (salt, keys) = rest.split_once('$')?;
    let (stored, server) = keys.split_once(':')?;
    let bytes = |text: &str| STANDARD.decode(text).ok();
    let key = |text: &str| bytes(text).filter(|key| key.len() == digest::SHA256_OUTPUT_LEN);
    let (iterations, salt) = (iterations.parse().ok()?, bytes(salt)?);
    // Others would tell which names there are: those that nobody has have these.
    (iterations == ITERATIONS).then_some(())?;
    let (stored_key, server_key) = (key(stored)?, key(server)?);
    let verifier = Verifier { iterations, salt, stored_key, server_key, is_nobodys: false };
    (!name.is_empty()).then(|| (name.to_string(), verifier))
}

/// The verifier of a password, as a line has it.
#[cfg(test)]
pub fn verifier_of(password: &str, salt: &[u8]) -> Verifier {
    match parsed(&line_of("a", password, salt)) {
        Some((_, verifier)) => verifier,
        None => panic!("a line that is none"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_verifier_is_postgresqls() {
        // As a PostgreSQL server keeps the password "pencil" with this salt.
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let line = line_of("ada", "pencil", &salt);
        assert_eq!(
            line,
            "ada:SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
        );
    }

    #[test]
    fn only_the_right_password_of_a_user_is_right() {
        let folder = tempfile();
        let path = folder.join("users");
        let lines =
            format!("# who\n\n{}\n{}\n", line("ada", "pencil").unwrap(), line("bob", "ü").unwrap());
        std::fs::write(&path, lines).unwrap();
        let users = Users::read(&path).unwrap();
        assert!(users.is_right("ada", "pencil") && users.is_right("bob", "ü"));
        for (name, password) in
            [("ada", "Pencil"), ("bob", "pencil"), ("eve", "pencil"), ("ada", ""), ("", "")]
        {
            assert!(!users.is_right(name, password), "{name}");
        }
        let token = users.token("ada", 100);
        assert_eq!(users.of_token(&token, 99).as_deref(), Some("ada"));
        assert_eq!(users.of_token(&token, 100), None);
        assert_eq!(users.of_token(&token.replace("OmFkYQ", "OmJvYg"), 99), None);
        assert_eq!(Users::read(&path).unwrap().of_token(&token, 99), None, "of another process");
        assert!(!users.may_make_functions("ada"));
        let users = users.with_cuda_functions(&["ada".to_string()]).unwrap();
        assert!(users.may_make_functions("ada") && !users.may_make_functions("bob"));
        assert!(users.is_right("bob", "ü"));
        assert!(
            users.with_cuda_functions(&["eve".to_string()]).unwrap_err().contains("no such user")
        );
        for (wrong, cause) in
            [("ada", "line 1: no user"), ("ada:md5abc", "no user"), ("# nobody", "no users")]
        {
            std::fs::write(&path, wrong).unwrap();
            assert!(Users::read(&path).unwrap_err().contains(cause), "{wrong}");
        }
        let twice = format!("{}\n{}", line("a", "b").unwrap(), line("a", "c").unwrap());
        std::fs::write(&path, twice).unwrap();
        assert!(Users::read(&path).unwrap_err().contains("twice"));
        assert!(line("a:b", "c").is_err() && line("a", "").is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }

    fn tempfile() -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("headrace-users-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }
}
