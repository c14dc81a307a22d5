//! Credentials of the files that `aws configure` writes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// What a profile says.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Key, secret and, of a session, its token.
    pub keys: Option<(String, String, Option<String>)>,
    /// Region.
    pub region: Option<String>,
    /// Address of a store that is not Amazon's.
    pub endpoint: Option<String>,
}

impl Profile {
    /// The profile that the environment names, or the default one; empty where there is none.
    pub fn current() -> Profile {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let home = variable("HOME").map(PathBuf::from).unwrap_or_default();
        let path = |name: &str, file: &str| {
            variable(name).map_or_else(|| home.join(".aws").join(file), PathBuf::from)
        };
        let name = variable("AWS_PROFILE").unwrap_or_else(|| "default".to_string());
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        Self::of(
            &name,
            &read(path("AWS_SHARED_CREDENTIALS_FILE", "credentials")),
            &read(path("AWS_CONFIG_FILE", "config")),
        )
    }

    fn of(name: &str, credentials: &str, config: &str) -> Profile {
        let mut values = section(config, &[&format!("profile {name}"), name]);
        values.extend(section(credentials, &[name]));
        let mut take = |key: &str| values.remove(key).filter(|value| !value.is_empty());
        let token = take("aws_session_token");
        let keys = take("aws_access_key_id").zip(take("aws_secret_access_key"));
        Profile {
            keys: keys.map(|(key, secret)| (key, secret, token)),
            region: take("region"),
            endpoint: take("endpoint_url"),
        }
    }
}

/// The values of the sections of these names.
fn section(text: &str, names: &[&str]) -> HashMap<String, String> {
    let (mut values, mut is_inside) = (HashMap::new(), false);
    for line in text.lines() {
        // Settings of a service stand below its name, further in.
        let is_nested = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            is_inside = names.contains(&name.trim());
        } else if let Some((key, value)) = line.split_once('=')
            && is_inside
            && !is_nested
        {
            values.insert(key.trim().to_ascii_lowercase(), value.trim().to_string());
        }
    }
    values
}

/// Whether a service of this machine can be asked who it is: an instance of Amazon's, or one that says so.
pub fn is_instance() -> bool {
    let vendor = std::fs::read_to_string(Path::new("/sys/class/dmi/id/sys_vendor"));
    vendor.is_ok_and(|vendor| vendor.starts_with("Amazon EC2"))
        || std::env::var_os("AWS_METADATA_ENDPOINT").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_has_two_files() {
        let credentials = "[default]\naws_access_key_id = A\naws_secret_access_key=B\n\n[other]\n\
                           aws_access_key_id = C\naws_secret_access_key=D=\naws_session_token = E\n";
        let config = "# mine\n[default]\nregion = eu-west-1\ns3 =\n  region = wrong\n[profile other]\n\
                      endpoint_url = http://localhost:9\n";
        let default = Profile::of("default", credentials, config);
        assert_eq!(default.keys, Some(("A".into(), "B".into(), None)));
        assert_eq!(default.region.as_deref(), Some("eu-west-1"));
        let other = Profile::of("other", credentials, config);
        assert_eq!(other.keys, Some(("C".into(), "D=".into(), Some("E".into()))));
        assert_eq!(other.endpoint.as_deref(), Some("http://localhost:9"));
        assert_eq!(Profile::of("none", credentials, config), Profile::default());
    }
}
