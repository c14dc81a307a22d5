//! Settings, by [`crate::SessionOptions`] and by `SET headrace.<name> = '<value>'`.

use std::any::Any;
use std::fmt;
use std::str::FromStr;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::common::{DataFusionError, Result, plan_err};

/// Which processor runs pipelines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Processor {
    /// CUDA if there is a GPU and it takes the pipeline, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// A CUDA GPU.
    Cuda,
    /// None: the planner's own plan.
    Off,
}

/// What happens to a query, or a part of it, that the wanted processor cannot run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fallback {
    /// It runs elsewhere, and EXPLAIN and the report say where and why.
    #[default]
    Allow,
    /// The query fails with the reason. Every scan of a Headrace table must then be inside a
    /// pipeline that runs on the wanted processor.
    Forbid,
}

/// How bytes reach the processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Chosen for each extent.
    #[default]
    Auto,
    /// Mapped and consumed in place.
    Mapped,
    /// Read through the page cache.
    Buffered,
    /// Read around the page cache.
    Direct,
}

macro_rules! named_values {
    ($type:ty, $setting:literal, $($value:path => $name:literal),+) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($value => $name),+ })
            }
        }

        impl FromStr for $type {
            type Err = DataFusionError;

            fn from_str(text: &str) -> Result<Self> {
                match text.to_ascii_lowercase().as_str() {
                    $($name => Ok($value),)+
                    _ => plan_err!(
                        "'{text}' is not a value of headrace.{}; valid values are {}",
                        $setting,
                        [$($name),+].join(", ")
                    ),
                }
            }
        }
    };
}

named_values!(Processor, "processor",
    Processor::Auto => "auto", Processor::Cpu => "cpu",
    Processor::Cuda => "cuda", Processor::Off => "off");
named_values!(Fallback, "fallback", Fallback::Allow => "allow", Fallback::Forbid => "forbid");
named_values!(Access, "access",
    Access::Auto => "auto", Access::Mapped => "mapped",
    Access::Buffered => "buffered", Access::Direct => "direct");

/// The settings that SQL can change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadraceConfig {
    /// Which processor runs pipelines.
    pub processor: Processor,
    /// What happens to what it cannot run.
    pub fallback: Fallback,
    /// How bytes reach it.
    pub access: Access,
    /// Threads that execute a pipeline on the CPU.
    pub threads: usize,
    /// Largest chunk in bytes: what a worker takes at once.
    pub chunk_bytes: u64,
}

impl Default for HeadraceConfig {
    fn default() -> Self {
        Self {
            processor: Processor::default(),
            fallback: Fallback::default(),
            access: Access::default(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            chunk_bytes: 4 << 20,
        }
    }
}

const NAMES: [(&str, &str); 5] = [
    ("processor", "What runs pipelines: auto, cpu, cuda or off"),
    ("fallback", "What happens to what the processor cannot run: allow or forbid"),
    ("access", "How bytes reach the processor: auto, mapped, buffered or direct"),
    ("threads", "Threads that execute a pipeline on the CPU"),
    ("chunk_bytes", "Largest chunk that a worker takes at once, in bytes"),
];

impl HeadraceConfig {
    /// The settings of a session.
    pub fn of(options: &ConfigOptions) -> Self {
        options.extensions.get::<Self>().cloned().unwrap_or_default()
    }

    fn value(&self, name: &str) -> Option<String> {
        Some(match name {
            "processor" => self.processor.to_string(),
            "fallback" => self.fallback.to_string(),
            "access" => self.access.to_string(),
            "threads" => self.threads.to_string(),
            "chunk_bytes" => self.chunk_bytes.to_string(),
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
        match key {
            "processor" => self.processor = value.parse()?,
            "fallback" => self.fallback = value.parse()?,
            "access" => self.access = value.parse()?,
            "threads" => self.threads = positive(key, value)?,
            "chunk_bytes" => self.chunk_bytes = positive(key, value)? as u64,
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
