//! The server and the user: a DSN, completed like in psql.
//!
//! A DSN is a URI or `key=value` pairs. Missing parts come from the PG* variables, then from psql's
//! defaults: the server's socket, the user of the operating system. A missing password is looked up
//! in ~/.pgpass.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::error::{PgError, Result};
use crate::tls::{Tls, TlsRequest};
use crate::words;

/// Folders in which servers put their sockets.
const SOCKET_FOLDERS: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// The TLS parameters of a DSN, and their variables.
const TLS_WORDS: [(&str, &str); 4] = [
    ("sslmode", "PGSSLMODE"),
    ("sslrootcert", "PGSSLROOTCERT"),
    ("sslcert", "PGSSLCERT"),
    ("sslkey", "PGSSLKEY"),
];

/// The environment, or a test's.
pub(crate) type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A server and its connection parameters.
#[derive(Clone)]
pub(crate) struct Server {
    pub config: Config,
    pub tls: Tls,
}

/// How to connect; an empty DSN uses the environment alone.
pub(crate) fn resolve(dsn: &str, variable: Variables<'_>) -> Result<Server> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let (dsn, words) = words::take(dsn, &TLS_WORDS.map(|(word, _)| word));
    let config = config(&dsn, &set)?;
    let [mode, root_file, certificate_file, key_file] =
        TLS_WORDS.map(|(word, name)| words.get(word).cloned().or_else(|| set(name)));
    let user_folder = set("HOME").map(|home| Path::new(&home).join(".postgresql"));
    let mut tls =
        Tls::new(&TlsRequest { mode, root_file, certificate_file, key_file, user_folder })?;
    if config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_))) {
        tls.attempts = vec![SslMode::Disable];
    }
    Ok(Server { config, tls })
}

fn config(dsn: &str, set: Variables<'_>) -> Result<Config> {
    let unreadable = |error: tokio_postgres::Error| {
        // The DSN itself may hold a password: it is not repeated.
        let source =
            std::error::Error::source(&error).map_or_else(|| error.to_string(), |s| s.to_string());
        PgError::usage(format!("DSN: {source}")).remedy(
            "postgresql://user@host:port/database, or \"host=... port=... dbname=... user=...\"",
        )
    };
    let mut config: Config = dsn.parse().map_err(unreadable)?;
    // Addresses alone have no name to ask a certificate for.
    if config.get_hosts().is_empty() {
        for address in config.get_hostaddrs().to_vec() {
            config.host(address.to_string());
        }
    }
    if config.get_hosts().is_empty() {
        for host in set("PGHOST").unwrap_or_else(default_host).split(',') {
            config.host(host);
        }
    }
    if config.get_ports().is_empty()
        && let Some(ports) = set("PGPORT")
    {
        for port in ports.split(',') {
            let number =
                port.parse().map_err(|_| PgError::usage(format!("PGPORT: {port:?} is no port")))?;
            config.port(number);
        }
    }
    if config.get_user().is_none()
        && let Some(user) = set("PGUSER").or_else(|| set("USER"))
    {
        config.user(user);
    }
    if config.get_dbname().is_none()
        && let Some(name) = set("PGDATABASE")
    {
        config.dbname(name);
    }
    if config.get_options().is_none()
        && let Some(options) = set("PGOPTIONS")
    {
        config.options(options);
    }
    config.application_name(set("PGAPPNAME").unwrap_or_else(|| "headrace".into()));
    if config.get_password().is_none()
        && let Some(password) = set("PGPASSWORD").or_else(|| from_pgpass(&config, set))
    {
        config.password(password);
    }
    Ok(config)
}

/// The server and the database, for messages.
pub(crate) fn place(config: &Config) -> String {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        Some(Host::Unix(folder)) => folder.display().to_string(),
        None => config.get_hostaddrs().first().map(ToString::to_string).unwrap_or_default(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let name = config.get_dbname().or(config.get_user()).unwrap_or_default();
    format!("{host}:{port}/{name}")
}

fn default_host() -> String {
    let there = SOCKET_FOLDERS.iter().find(|folder| Path::new(folder).is_dir());
    there.map_or_else(|| "localhost".into(), ToString::to_string)
}

/// The first matching line of the password file. As in psql, a file that others may read is ignored.
fn from_pgpass(config: &Config, set: Variables<'_>) -> Option<String> {
    let file = set("PGPASSFILE").map(PathBuf::from);
    let file = file.or_else(|| set("HOME").map(|home| Path::new(&home).join(".pgpass")))?;
    let is_private = fs::metadata(&file).ok()?.permissions().mode() & 0o077 == 0;
    if !is_private {
        return None;
    }
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        Some(Host::Unix(folder))
            if SOCKET_FOLDERS.iter().any(|known| Path::new(known) == folder) =>
        {
            "localhost".into()
        }
        Some(Host::Unix(folder)) => folder.display().to_string(),
        None => config.get_hostaddrs().first()?.to_string(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432).to_string();
    let user = config.get_user().unwrap_or_default();
    let wanted = [host.as_str(), &port, config.get_dbname().unwrap_or(user), user];
    fs::read_to_string(file).ok()?.lines().find_map(|line| {
        let fields = pgpass_fields(line);
        let fits = fields.len() == 5
            && wanted.iter().zip(&fields).all(|(wanted, field)| field == "*" || field == wanted);
        fits.then(|| fields[4].clone())
    })
}

/// Fields between colons; a backslash escapes a colon or a backslash.
fn pgpass_fields(line: &str) -> Vec<String> {
    if line.starts_with('#') {
        return Vec::new();
    }
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        match c {
            ':' if fields.len() < 5 => fields.push(String::new()),
            c => {
                let plain = if c == '\\' { characters.next().unwrap_or('\\') } else { c };
                if let Some(field) = fields.last_mut() {
                    field.push(plain);
                }
            }
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn with(dsn: &str, variables: &[(&str, &str)]) -> Result<Config> {
        let found = |name: &str| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string())
        };
        resolve(dsn, &found).map(|server| server.config)
    }

    #[test]
    fn the_dsn_comes_before_the_environment_and_that_before_defaults() {
        let variables = [
            ("PGHOST", "elsewhere"),
            ("PGPORT", "5433"),
            ("PGUSER", "ann"),
            ("PGDATABASE", "shop"),
        ];
        let config = with("postgresql://bob@here:5434/stock", &variables).unwrap();
        assert_eq!(place(&config), "here:5434/stock");
        assert_eq!(config.get_user(), Some("bob"));
        let config = with("host=/tmp dbname='my shop'", &variables).unwrap();
        assert_eq!(place(&config), "/tmp:5433/my shop");
        assert_eq!(config.get_user(), Some("ann"));
        let config = with("", &[("USER", "carl")]).unwrap();
        assert!(matches!(&config.get_hosts()[0], Host::Unix(_) | Host::Tcp(_)));
        assert_eq!(config.get_user(), Some("carl"));
    }

    #[test]
    fn tls_is_what_the_dsn_says_and_passwords_are_not_repeated() {
        let attempts = |dsn: &str, mode: &str| {
            let found = |name: &str| (name == "PGSSLMODE").then(|| mode.to_string());
            resolve(dsn, &found).map(|server| server.tls.attempts)
        };
        assert_eq!(attempts("host=h", "require").unwrap(), [SslMode::Require]);
        assert_eq!(attempts("host=h sslmode=disable", "require").unwrap(), [SslMode::Disable]);
        assert_eq!(attempts("hostaddr=10.0.0.1", "require").unwrap(), [SslMode::Require]);
        assert_eq!(attempts("host=/tmp", "require").unwrap(), [SslMode::Disable]);
        let error = attempts("postgresql://a:secret@h/d?sslmode=verify-full", "").unwrap_err();
        assert!(error.remedy.contains("root.crt") && !error.to_string().contains("secret"));
        let error = with("host=h password=secret port=many", &[]).unwrap_err();
        assert!(error.cause.contains("port") && !error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn the_password_file_is_read_as_psql_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pgpass");
        fs::write(&file, "# no\nh:5432:d:u\\:1:se\\:cr\\\\et:x\nlocalhost:*:*:ann:here\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let password = |dsn: &str| {
            let config = with(dsn, &[("PGPASSFILE", file.to_str().unwrap())]).unwrap();
            config.get_password().map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
        };
        assert_eq!(password("host=h dbname=d user=u:1").as_deref(), Some("se:cr\\et:x"));
        assert_eq!(password("host=/tmp user=ann").as_deref(), Some("here"));
        assert_eq!(password("host=h dbname=other user=u:1"), None);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(password("host=/tmp user=ann"), None);
    }
}
