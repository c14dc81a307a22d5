//! The runner's settings as DataFusion's: `SET headrace.<name> = '<value>'`.

use std::any::Any;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::common::{DataFusionError, Result, plan_err};
use headrace_runner::{SettingError, Settings, parse_access};

/// The settings that SQL can change, as an extension of DataFusion's options.
#[derive(Clone, Debug, Default)]
pub struct HeadraceConfig(pub Settings);

/// The settings of a session.
pub fn settings_of(options: &ConfigOptions) -> Settings {
    options.extensions.get::<HeadraceConfig>().map(|config| config.0.clone()).unwrap_or_default()
}

fn wrong_value(error: SettingError) -> DataFusionError {
    DataFusionError::Plan(error.to_string())
}

const NAMES: [(&str, &str); 6] = [
    ("processor", "What runs pipelines: auto, cpu, cuda or off"),
    ("fallback", "What happens to what the processor cannot run: allow or forbid"),
    (
        "access",
        "How bytes reach the processor: auto, mapped, buffered or direct; on a GPU registered or cufile too",
    ),
    ("threads", "Threads that execute a pipeline on the CPU"),
    ("chunk_bytes", "Largest chunk that a worker takes at once, in bytes"),
    ("devices", "GPUs that take part: all, or their ordinals, such as 0,1"),
];

impl HeadraceConfig {
    fn value(&self, name: &str) -> Option<String> {
        let settings = &self.0;
        Some(match name {
            "processor" => settings.processor.to_string(),
            "fallback" => settings.fallback.to_string(),
            "access" => settings.access.to_string(),
            "threads" => settings.threads.to_string(),
            "chunk_bytes" => settings.chunk_bytes.to_string(),
            "devices" => settings.devices.to_string(),
            _ => return None,
        })
    }
}

impl ConfigExtension for HeadraceConfig {
    const PREFIX: &'static str = "headrace";
}

impl ExtensionOptions for HeadraceConfig {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let settings = &mut self.0;
        match key {
            "processor" => settings.processor = value.parse().map_err(wrong_value)?,
            "fallback" => settings.fallback = value.parse().map_err(wrong_value)?,
            "access" => settings.access = parse_access(value).map_err(wrong_value)?,
            "threads" => settings.threads = positive(key, value)?,
            "chunk_bytes" => settings.chunk_bytes = positive(key, value)? as u64,
            "devices" => settings.devices = value.parse().map_err(wrong_value)?,
            _ => {
                let names = NAMES.map(|(name, _)| name).join(", ");
                return plan_err!("there is no setting headrace.{key}; the settings are {names}");
            }
        }
        Ok(())
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        NAMES
            .iter()
            .map(|(name, description)| ConfigEntry {
                key: format!("{}.{name}", Self::PREFIX),
                value: self.value(name),
                description,
            })
            .collect()
    }
}

fn positive(key: &str, value: &str) -> Result<usize> {
    match value.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => plan_err!("'{value}' is not a value of headrace.{key}; it is a number above 0"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn settings_are_read_back_as_they_were_set() {
        let mut config = HeadraceConfig::default();
        config.set("processor", "CPU").unwrap();
        config.set("fallback", "forbid").unwrap();
        config.set("threads", "3").unwrap();
        let value = |name: &str| {
            let key = format!("headrace.{name}");
            config.entries().into_iter().find(|e| e.key == key).unwrap().value.unwrap()
        };
        assert_eq!(value("processor"), "cpu");
        assert_eq!(value("fallback"), "forbid");
        assert_eq!(value("threads"), "3");
    }

    #[test]
    fn unknown_values_and_names_are_answered_with_the_valid_ones() {
        let mut config = HeadraceConfig::default();
        let error = config.set("processor", "gpu").unwrap_err().to_string();
        assert!(error.contains("auto, cpu, cuda, off"), "{error}");
        let error = config.set("procesor", "cpu").unwrap_err().to_string();
        assert!(error.contains("processor, fallback"), "{error}");
        assert!(config.set("threads", "0").is_err());
    }
}
