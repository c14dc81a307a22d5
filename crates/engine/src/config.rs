//! The runner's settings as DataFusion's: `SET headrace.<name> = '<value>'`.

use std::any::Any;
use std::time::Duration;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::common::{DataFusionError, Result, plan_err};
use headrace_runner::{SettingError, Settings, parse_access, parse_gpu_for};

/// The settings that SQL can change, as an extension of DataFusion's options.
#[derive(Clone, Debug, Default)]
pub struct HeadraceConfig {
    /// The runner's.
    pub settings: Settings,
    /// How long a statement may take; 0 is for ever.
    pub statement_timeout: Duration,
    /// What the session began with, which RESET goes back to.
    initial: Settings,
}

/// The settings of a session.
pub fn settings_of(options: &ConfigOptions) -> Settings {
    let config = options.extensions.get::<HeadraceConfig>();
    config.map(|config| config.settings.clone()).unwrap_or_default()
}

/// How long a statement of a session may take; 0 is for ever.
pub fn statement_timeout_of(options: &ConfigOptions) -> Duration {
    let config = options.extensions.get::<HeadraceConfig>();
    config.map(|config| config.statement_timeout).unwrap_or_default()
}

fn wrong_value(error: SettingError) -> DataFusionError {
    DataFusionError::Plan(error.to_string())
}

const NAMES: [(&str, &str); 10] = [
    (
        "processor",
        "What runs pipelines: auto (what is expected to be done first), cpu, cuda or off",
    ),
    ("fallback", "What happens to what the processor cannot run: allow or forbid"),
    (
        "access",
        "How bytes reach the processor: auto, mapped, buffered or direct; on a GPU registered or cufile too",
    ),
    ("threads", "Threads that execute a pipeline on the CPU"),
    ("chunk_bytes", "Largest chunk that a worker takes at once, in bytes"),
    ("devices", "GPUs that take part: all, or their ordinals, such as 0,1"),
    (
        "gpu_for",
        "Which of several GPUs take the files below some paths, such as /data1=0,/data2=all; those of other files are the nearest to their storage",
    ),
    (
        "gpu_service",
        "The process that owns the GPUs and runs pipelines over Arrow files: auto (this user's, if it runs), off, or the folder of its socket",
    ),
    (
        "function_timeout",
        "How long a query that calls functions in CUDA may take before the GPU service ends it, and itself with it; as statement_timeout, but never for ever",
    ),
    (
        "statement_timeout",
        "How long a statement may take, such as 500ms, 2s or 1min; a number is milliseconds, 0 is for ever. Called statement_timeout, too",
    ),
];

/// The names of the settings, without their prefix.
pub fn names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().map(|(name, _)| *name)
}

impl HeadraceConfig {
    /// Of a new session.
    pub fn of(settings: Settings) -> Self {
        Self { initial: settings.clone(), settings, statement_timeout: Duration::ZERO }
    }

    /// What a setting was when the session began.
    pub fn initial(&self, name: &str) -> Option<String> {
        Self::of(self.initial.clone()).value(name)
    }

    fn value(&self, name: &str) -> Option<String> {
        let settings = &self.settings;
        Some(match name {
            "processor" => settings.processor.to_string(),
            "fallback" => settings.fallback.to_string(),
            "access" => settings.access.to_string(),
            "threads" => settings.threads.to_string(),
            "chunk_bytes" => settings.chunk_bytes.to_string(),
            "devices" => settings.devices.to_string(),
            "gpu_for" => settings.gpu_for.to_string(),
            "gpu_service" => settings.gpu_service.to_string(),
            "function_timeout" => format!("{}ms", settings.function_timeout_ms),
            "statement_timeout" => format!("{}ms", self.statement_timeout.as_millis()),
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
        let settings = &mut self.settings;
        match key {
            "processor" => settings.processor = value.parse().map_err(wrong_value)?,
            "fallback" => settings.fallback = value.parse().map_err(wrong_value)?,
            "access" => settings.access = parse_access(value).map_err(wrong_value)?,
            "threads" => settings.threads = positive(key, value)?,
            "chunk_bytes" => settings.chunk_bytes = positive(key, value)? as u64,
            "devices" => settings.devices = value.parse().map_err(wrong_value)?,
            "gpu_for" => settings.gpu_for = parse_gpu_for(value).map_err(wrong_value)?,
            "gpu_service" => settings.gpu_service = value.parse().map_err(wrong_value)?,
            "function_timeout" => match duration(key, value)?.as_millis() {
                0 => return plan_err!("headrace.function_timeout is never 0, which is for ever"),
                ms => settings.function_timeout_ms = ms as u64,
            },
            "statement_timeout" => self.statement_timeout = duration(key, value)?,
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

/// A time as PostgreSQL takes one.
fn duration(key: &str, value: &str) -> Result<Duration> {
    let text = value.trim();
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let ms_per_unit = match &text[number.len()..] {
        "us" => 0.001,
        "" | "ms" => 1.0,
        "s" => 1e3,
        "min" => 60e3,
        "h" => 3600e3,
        "d" => 86_400e3,
        _ => f64::NAN,
    };
    let ms = number.trim().parse::<f64>().map_or(f64::NAN, |number| number * ms_per_unit);
    // As many as PostgreSQL takes, 24 days.
    match ms.is_nan() || !(0.0..=f64::from(i32::MAX)).contains(&ms) {
        true => plan_err!(
            "'{value}' is not a value of {key}\n\
             hint: write 500ms, 2s, 1min, or a number of milliseconds; 0 is for ever"
        ),
        // Less than a millisecond is not for ever.
        false if ms > 0.0 => Ok(Duration::from_secs_f64(ms.max(1.0) / 1e3)),
        false => Ok(Duration::ZERO),
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
    fn times_have_the_units_of_postgresql() {
        let ms = |text: &str| duration("statement_timeout", text).map(|time| time.as_millis()).ok();
        let wanted = [("2s", 2000), ("0", 0), ("250", 250), ("1.5 min", 90_000), ("1us", 1)];
        for (text, wanted) in wanted {
            assert_eq!(ms(text), Some(wanted), "{text}");
        }
        for wrong in ["", "s", "-1", "2 S", "2 weeks", "25d", "inf"] {
            assert_eq!(ms(wrong), None, "{wrong}");
        }
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
