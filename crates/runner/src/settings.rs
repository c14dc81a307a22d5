//! How programs are run.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use headrace_flow::AccessPath;
use headrace_io::system::GpuFor;
use serde::{Deserialize, Serialize};

use crate::share::ThreadShare;

/// Which processor runs pipelines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Processor {
    /// CUDA if there is a GPU that takes the pipeline and is expected to be done first, else the CPU: see
    /// `placement`.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fallback {
    /// It runs elsewhere, and EXPLAIN and the report say where and why.
    #[default]
    Allow,
    /// The query fails with the reason. Every scan of a Headrace table must then be inside a
    /// pipeline that runs on the wanted processor, and bytes of files must come by [`Settings::access`].
    Forbid,
}

/// Which GPUs take part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Devices {
    /// All that there are and that work.
    #[default]
    All,
    /// These, by their ordinals, which count from 0.
    These(Vec<usize>),
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::These(ordinals) => {
                let texts: Vec<String> = ordinals.iter().map(usize::to_string).collect();
                f.write_str(&texts.join(","))
            }
        }
    }
}

impl FromStr for Devices {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        if text.eq_ignore_ascii_case("all") {
            return Ok(Self::All);
        }
        let ordinals: Result<Vec<usize>, _> = text.split(',').map(|o| o.trim().parse()).collect();
        let mut ordinals = ordinals.map_err(|_| SettingError {
            setting: "devices",
            text: text.to_string(),
            valid: "all, or ordinals such as 0 or 0,1".to_string(),
        })?;
        ordinals.sort_unstable();
        ordinals.dedup();
        Ok(Self::These(ordinals))
    }
}

/// The process that owns the GPUs and runs pipelines for others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum GpuService {
    /// None: this process runs them.
    #[default]
    Off,
    /// The one of this user, if it runs.
    Auto,
    /// The one whose socket lies in this folder, if it runs.
    At(PathBuf),
}

impl fmt::Display for GpuService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Auto => f.write_str("auto"),
            Self::At(folder) => write!(f, "{}", folder.display()),
        }
    }
}

impl FromStr for GpuService {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        match text {
            "off" => Ok(Self::Off),
            "auto" => Ok(Self::Auto),
            folder if folder.contains('/') => Ok(Self::At(folder.into())),
            _ => Err(SettingError {
                setting: "gpu_service",
                text: text.to_string(),
                valid: "auto, off, or the folder of its socket, such as ./gpu-service".to_string(),
            }),
        }
    }
}

/// A text that is no value of a setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a value of headrace.{setting}; valid values are {valid}")]
pub struct SettingError {
    /// Name of the setting.
    pub setting: &'static str,
    /// What was given.
    pub text: String,
    /// What may be given.
    pub valid: String,
}

macro_rules! named_values {
    ($type:ty, $setting:literal, $($value:path => $name:literal),+) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($value => $name),+ })
            }
        }

        impl FromStr for $type {
            type Err = SettingError;

            fn from_str(text: &str) -> Result<Self, SettingError> {
                match text.to_ascii_lowercase().as_str() {
                    $($name => Ok($value),)+
                    _ => Err(SettingError {
                        setting: $setting,
                        text: text.to_string(),
                        valid: [$($name),+].join(", "),
                    }),
                }
            }
        }
    };
}

named_values!(Processor, "processor",
    Processor::Auto => "auto", Processor::Cpu => "cpu",
    Processor::Cuda => "cuda", Processor::Off => "off");
named_values!(Fallback, "fallback", Fallback::Allow => "allow", Fallback::Forbid => "forbid");

/// Which GPUs take the files below some paths.
///
/// # Errors
/// [`SettingError`].
pub fn parse_gpu_for(text: &str) -> Result<GpuFor, SettingError> {
    text.parse().map_err(|_| SettingError {
        setting: "gpu_for",
        text: text.to_string(),
        valid: "paths with the ordinals of their GPUs, each path once, such as /data1=0,/data2=all, or nothing"
            .into(),
    })
}

/// The way of a name.
///
/// # Errors
/// [`SettingError`] with the valid names.
pub fn parse_access(text: &str) -> Result<AccessPath, SettingError> {
    let named = |access: &AccessPath| access.name().eq_ignore_ascii_case(text);
    AccessPath::ALL.into_iter().find(named).ok_or_else(|| SettingError {
        setting: "access",
        text: text.to_string(),
        valid: AccessPath::ALL.map(AccessPath::name).join(", "),
    })
}

/// How a program is run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Which processor runs pipelines.
    pub processor: Processor,
    /// What happens to what it cannot run.
    pub fallback: Fallback,
    /// How bytes reach it. What runs on the CPU chooses for each extent where the way is a GPU's, unless
    /// `fallback` forbids that.
    pub access: AccessPath,
    /// Whether bytes may come another way than `access` although `fallback` forbids another processor: a process that
    /// runs pipelines for others leaves it to those what else to do.
    #[serde(default)]
    pub may_go_other_ways: bool,
    /// Threads that execute a pipeline on the CPU.
    pub threads: usize,
    /// What the run has together with those of other processes, if with any.
    #[serde(skip)]
    pub share: Option<ThreadShare>,
    /// Largest chunk in bytes: what a worker takes at once.
    pub chunk_bytes: u64,
    /// Which GPUs take part.
    pub devices: Devices,
    /// Which of them take the files below some paths, whatever is nearest to these.
    #[serde(default)]
    pub gpu_for: GpuFor,
    /// Which process runs pipelines for this one.
    #[serde(skip)]
    pub gpu_service: GpuService,
    /// How long a run that calls functions in CUDA may take, in milliseconds, before the GPU service ends itself with it.
    #[serde(default = "function_timeout_ms")]
    pub function_timeout_ms: u64,
    /// Whether this is a rehearsal: it makes GPUs ready for later runs.
    #[serde(skip)]
    pub behind: bool,
}

impl Settings {
    /// Whether what no GPU runs fails, instead of running elsewhere.
    pub fn is_gpu_or_nothing(&self) -> bool {
        self.processor == Processor::Cuda && self.fallback == Fallback::Forbid
    }

    /// Whether bytes of files that come another way than `access` fail the run.
    pub fn forbids_other_ways(&self) -> bool {
        self.fallback == Fallback::Forbid && !self.may_go_other_ways
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            processor: Processor::default(),
            fallback: Fallback::default(),
            access: AccessPath::default(),
            may_go_other_ways: false,
            threads: headrace_io::system::cores(),
            share: None,
            chunk_bytes: 4 << 20,
            devices: Devices::default(),
            gpu_for: GpuFor::default(),
            gpu_service: GpuService::default(),
            function_timeout_ms: function_timeout_ms(),
            behind: false,
        }
    }
}

fn function_timeout_ms() -> u64 {
    60_000
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn devices_are_all_or_those_named() {
        assert_eq!("ALL".parse::<Devices>().unwrap(), Devices::All);
        let devices: Devices = "1, 0,1".parse().unwrap();
        assert_eq!(devices, Devices::These(vec![0, 1]));
        assert_eq!(devices.to_string(), "0,1");
        for text in ["", "0,", "one", "-1", "all,0"] {
            let error = text.parse::<Devices>().unwrap_err().to_string();
            assert!(error.contains("headrace.devices"), "{error}");
        }
    }
}
