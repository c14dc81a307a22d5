//! Settings that PostgreSQL's clients set and ask for, beside the engine's own.

use std::collections::BTreeMap;

use headrace_engine::failure::{Class, Failure};

/// The version that clients are told: what they then ask for are tables of this one.
pub const SERVER_VERSION: &str = "15.0";

/// Name, default, and whether a client is told of each change.
const KNOWN: &[(&str, &str, bool)] = &[
    ("application_name", "", true),
    ("bytea_output", "hex", false),
    ("client_encoding", "UTF8", true),
    ("client_min_messages", "notice", false),
    ("DateStyle", "ISO, MDY", true),
    ("default_table_access_method", "heap", false),
    ("default_transaction_isolation", "read committed", false),
    ("default_transaction_read_only", "off", true),
    ("default_transaction_deferrable", "off", false),
    ("enable_seqscan", "on", false),
    ("escape_string_warning", "on", false),
    ("extra_float_digits", "1", false),
    ("geqo", "on", false),
    ("idle_in_transaction_session_timeout", "0", false),
    ("in_hot_standby", "off", true),
    ("integer_datetimes", "on", true),
    ("IntervalStyle", "postgres", true),
    ("is_superuser", "off", true),
    ("jit", "off", false),
    ("lc_collate", "C", false),
    ("lc_ctype", "C", false),
    ("lc_messages", "C", false),
    ("lc_monetary", "C", false),
    ("lc_numeric", "C", false),
    ("lc_time", "C", false),
    ("lock_timeout", "0", false),
    ("max_identifier_length", "63", false),
    ("max_index_keys", "32", false),
    ("password_encryption", "scram-sha-256", false),
    ("row_security", "on", false),
    ("search_path", "public", false),
    ("server_encoding", "UTF8", true),
    ("server_version", SERVER_VERSION, true),
    ("server_version_num", "150000", false),
    ("ssl", "off", false),
    ("standard_conforming_strings", "on", true),
    ("synchronize_seqscans", "on", false),
    ("TimeZone", "UTC", true),
    ("transaction_deferrable", "off", false),
    ("transaction_isolation", "read committed", false),
    ("transaction_read_only", "off", false),
];

/// Those that describe the server.
const FIXED: &[&str] = &[
    "in_hot_standby", "integer_datetimes", "is_superuser", "lc_collate", "lc_ctype",
    "max_identifier_length", "max_index_keys", "server_encoding", "server_version",
    "server_version_num", "ssl",
];

/// Those that have one value here, and another is refused rather than forgotten.
const ONLY: &[(&str, &[&str])] = &[
    ("bytea_output", &["hex"]),
    ("datestyle", &["iso", "iso, mdy", "iso, ymd", "iso, dmy"]),
    ("intervalstyle", &["postgres"]),
    ("standard_conforming_strings", &["on", "true", "1", "yes"]),
];

/// The settings of one session.
#[derive(Clone, Debug, Default)]
pub struct PgSettings(BTreeMap<String, String>);

pub fn is_utf8(encoding: &str) -> bool {
    let plain = encoding.trim_matches('\'').to_ascii_lowercase().replace(['-', '_'], "");
    matches!(plain.as_str(), "utf8" | "unicode" | "sqlascii" | "auto")
}

/// What has another name in SQL.
fn known(name: &str) -> Option<&'static (&'static str, &'static str, bool)> {
    KNOWN.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name))
}

impl PgSettings {
    /// The value of a setting that there is here.
    pub fn get(&self, name: &str) -> Option<String> {
        let (_, default, _) = known(name)?;
        Some(self.0.get(&name.to_lowercase()).cloned().unwrap_or_else(|| default.to_string()))
    }

    /// Its name as clients are told, and what it is now; `None`: it is none of these.
    ///
    /// # Errors
    /// A value that it does not take.
    pub fn set(
        &mut self,
        name: &str,
        value: Option<&str>,
    ) -> Result<Option<(&'static str, String)>, Failure> {
        let Some((shown, default, _)) = known(name) else { return Ok(None) };
        let key = name.to_lowercase();
        let Some(value) = value else {
            self.0.remove(&key);
            return Ok(Some((shown, default.to_string())));
        };
        if FIXED.contains(&key.as_str()) {
            let cause = format!("{shown} says what the server is, and is not set");
            return Err(Failure::new(Class::Setting, cause));
        }
        if key == "client_encoding" && !is_utf8(value) {
            let failure =
                Failure::new(Class::Setting, format!("there is no encoding {value} here"));
            return Err(failure.hint("texts are UTF-8"));
        }
        if let Some((_, taken)) = ONLY.iter().find(|(only, _)| *only == key)
            && !taken.contains(&value.to_lowercase().as_str())
        {
            let failure = Failure::new(Class::Setting, format!("{shown} is never {value} here"));
            return Err(failure.hint(format!("it is {default}")));
        }
        let value = if key == "client_encoding" { "UTF8" } else { value };
        self.0.insert(key, value.to_string());
        Ok(Some((shown, value.to_string())))
    }

    /// All as they were at the beginning.
    pub fn reset(&mut self) {
        self.0.clear();
    }

    /// What a client is told when it begins.
    pub fn told(&self) -> Vec<(&'static str, String)> {
        let told = KNOWN.iter().filter(|(.., is_told)| *is_told);
        told.filter_map(|(name, ..)| Some((*name, self.get(name)?))).collect()
    }

    /// All that there are.
    pub fn all(&self) -> Vec<(&'static str, String)> {
        KNOWN.iter().filter_map(|(name, ..)| Some((*name, self.get(name)?))).collect()
    }
}

/// Whether a client is told of a change.
pub fn is_told(name: &str) -> bool {
    known(name).is_some_and(|(.., is_told)| *is_told)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_set_is_told() {
        let mut settings = PgSettings::default();
        assert_eq!(settings.get("datestyle").as_deref(), Some("ISO, MDY"));
        let set = settings.set("application_name", Some("psql")).unwrap();
        assert_eq!(set, Some(("application_name", "psql".to_string())));
        assert_eq!(settings.get("APPLICATION_NAME").as_deref(), Some("psql"));
        settings.set("application_name", None).unwrap();
        assert_eq!(settings.get("application_name").as_deref(), Some(""));
        assert_eq!(settings.set("headrace.threads", Some("2")).unwrap(), None);
    }

    #[test]
    fn what_is_not_so_here_is_refused() {
        let mut settings = PgSettings::default();
        for (name, value) in [
            ("client_encoding", "latin1"),
            ("DateStyle", "SQL, DMY"),
            ("standard_conforming_strings", "off"),
            ("server_version", "99"),
        ] {
            assert!(settings.set(name, Some(value)).is_err(), "{name}");
        }
        assert!(settings.set("client_encoding", Some("UTF-8")).is_ok());
    }
}
