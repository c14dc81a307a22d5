//! cuFile (GPUDirect Storage): from files straight into device memory.
//!
//! ```text
//! CuFile::open ─► register(file) ─► CuFileHandle ──read/write──► device memory
//!       └───────► register_buffer(device buffer)   (pinned for the drive once, not per read)
//! ```
//!
//! The library is opened at run time, like NVRTC. If it is missing or refuses, that is a value
//! ([`CuFileUnavailable`]) with its reason and remedy. [`CuFile::mode`] tells, with the evidence,
//! which path the bytes really take: GPUDirect Storage, peer-to-peer DMA, or a copy through host
//! memory.
//!
//! # What was learnt about the library
//!
//! * The driver opens without nvidia-fs, in compatibility mode; `cuFileHandleRegister` decides
//!   whether a *file* can be used. It asks libudev for the file's block device, in compatibility
//!   mode too, and refuses with 5027 (or 5030) unless the device has both of the properties
//!   `ID_FS_USAGE` and `ID_FS_TYPE`. Containers and small virtual machines have no `/run/udev`.
//!   With both properties written by hand, libcufile 1.15 accepted files of ext4 on a virtio disk,
//!   with and without O_DIRECT; one of them alone, an empty `/run/udev`, or settings of cufile.json
//!   did not help. tmpfs has no block device: its files are accepted with
//!   `CUFILE_EXPERIMENTAL_FS=true` in the environment. [`CuFileError::remedy`] says so.
//! * With nvidia-fs loaded but its `/dev/nvidia-fs*` nodes missing, opening the driver fails and
//!   closes file descriptor 0. [`CuFile::open`] refuses such a machine before it tries.
//! * The library writes `cufile.log` into the current folder by default. Unless
//!   `CUFILE_LOGFILE_PATH`, `CUFILE_ENV_PATH_JSON` or /etc/cufile.json says otherwise, the log goes
//!   to Headrace's cache folder.
//! * The driver is opened once and never closed: a second opening after a close crashed in tests,
//!   and closing would break other users in the process.
//! * Nothing of it may be used after `fork`.

mod api;
mod error;
mod handle;
mod mode;

use std::env;
use std::ffi::{CString, c_char, c_int};
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Arc, OnceLock};

use cudarc::cufile::sys::{
    self, CUFileBoolConfigParameter_t as BoolParameter,
    CUFileSizeTConfigParameter_t as SizeParameter,
    CUFileStringConfigParameter_t as StringParameter, CUfileDriverStatusFlags as Flag,
};
use serde::Serialize;

use crate::cache::cache_folder;
use crate::driver;
use crate::properties::{Kind, Property};
use api::Library;
use mode::Facts;

pub use error::{CuFileError, CuFileUnavailable};
pub use handle::{CuFileHandle, RegisteredDeviceBuffer};
pub use mode::{CuFileCounts, CuFileMode, CuFileModeKind, NvidiaFs};

const PROC_FOLDER: &str = "/proc/driver/nvidia-fs";

/// The configuration that the library reads unless `CUFILE_ENV_PATH_JSON` names another.
const CONFIGURATION_FILE: &str = "/etc/cufile.json";

/// Versions whose statistics have the layout that this crate knows (CUDA 13.0 to 13.3).
const STATISTICS_VERSIONS: std::ops::RangeInclusive<(u32, u32)> = (1, 15)..=(1, 18);

/// Kinds of storage by their bit in the driver's status flags.
const STORAGE_KINDS: &[(Flag, &str)] = &[
    (Flag::CU_FILE_LUSTRE_SUPPORTED, "Lustre"),
    (Flag::CU_FILE_WEKAFS_SUPPORTED, "WekaFS"),
    (Flag::CU_FILE_NFS_SUPPORTED, "NFS"),
    (Flag::CU_FILE_GPFS_SUPPORTED, "GPFS"),
    (Flag::CU_FILE_NVME_SUPPORTED, "NVMe"),
    (Flag::CU_FILE_NVMEOF_SUPPORTED, "NVMe over fabrics"),
    (Flag::CU_FILE_SCSI_SUPPORTED, "SCSI"),
    (Flag::CU_FILE_SCALEFLUX_CSD_SUPPORTED, "ScaleFlux CSD"),
    (Flag::CU_FILE_NVMESH_SUPPORTED, "NVMesh"),
    (Flag::CU_FILE_BEEGFS_SUPPORTED, "BeeGFS"),
    (Flag::CU_FILE_NVME_P2P_SUPPORTED, "NVMe by peer-to-peer DMA"),
    (Flag::CU_FILE_SCATEFS_SUPPORTED, "ScaTeFS"),
];

/// What the driver says of itself (`cuFileDriverGetProperties`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CuFileProperties {
    /// nvidia-fs's version, (0, 0) without the module.
    pub nvidia_fs_version: (u32, u32),
    /// Kinds of storage with direct access.
    pub supported: Vec<&'static str>,
    /// Whether compatibility mode may replace direct access.
    pub allow_compatibility: bool,
    /// Whether the library polls for completions.
    pub poll: bool,
    /// The largest request to the storage in KiB.
    pub direct_io_max_kib: u64,
    /// Device memory for bounce buffers in KiB.
    pub device_cache_kib: u32,
    /// Device memory that may be pinned in KiB.
    pub pinned_memory_kib: u32,
}

/// cuFile, opened by this process.
pub struct CuFile {
    library: Library,
    properties: CuFileProperties,
    p2p_supported: bool,
}

impl fmt::Debug for CuFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CuFile")
            .field("path", &self.library.path)
            .field("version", &self.library.version)
            .field("properties", &self.properties)
            .finish()
    }
}

impl CuFile {
    /// Opens the library and its driver, once per process: a later call returns the same.
    /// `HEADRACE_CUFILE` names the library file or its folder; otherwise the loader's path, CUDA
    /// toolkits and Python wheels are searched. Takes tenths of a second.
    ///
    /// # Errors
    /// [`CuFileUnavailable`] without the library or a CUDA driver, when cuFile's driver
    /// does not open, or on a machine where opening it would do harm.
    pub fn open() -> Result<Arc<Self>, CuFileUnavailable> {
        static OUTCOME: OnceLock<Result<Arc<CuFile>, CuFileUnavailable>> = OnceLock::new();
        OUTCOME.get_or_init(|| Self::open_first(None).map(Arc::new)).clone()
    }

    fn open_first(path: Option<&Path>) -> Result<Self, CuFileUnavailable> {
        let nodes =
            ["/dev/nvidia-fs0", "/dev/nvidia-fs"].iter().any(|node| Path::new(node).exists());
        refuse_half_configured(NvidiaFs::read(Path::new(PROC_FOLDER)).as_ref(), nodes)?;
        driver::initialise().map_err(|error| CuFileUnavailable {
            reason: format!("cuFile needs CUDA: {error}"),
            remedy: "read through host memory".into(),
            code: None,
        })?;
        let library = Library::open(path).map_err(|reason| CuFileUnavailable {
            reason: format!("libcufile could not be loaded: {reason}"),
            remedy: format!(
                "install the CUDA toolkit's cuFile (the nvidia-cufile wheel is enough) and set \
                 {} to libcufile.so.0 or its folder",
                api::LIBRARY_VARIABLE
            ),
            code: None,
        })?;
        send_log_to_cache(&library);
        // SAFETY: the library is open; the call may come from any thread.
        let status = unsafe { (library.functions.cuFileDriverOpen)() };
        status.check("cuFileDriverOpen", || library.path.display().to_string()).map_err(refused)?;
        let (properties, p2p_supported) = read_properties(&library).map_err(refused)?;
        Ok(Self { library, properties, p2p_supported })
    }

    /// The library file.
    pub fn path(&self) -> &Path {
        &self.library.path
    }

    /// The library's version, (major, minor), where it tells.
    pub fn version(&self) -> Option<(u32, u32)> {
        self.library.version
    }

    /// nvidia-fs as /proc shows it now; `None` without the module.
    pub fn nvidia_fs() -> Option<NvidiaFs> {
        NvidiaFs::read(Path::new(PROC_FOLDER))
    }

    /// The configuration in force, as far as this version of the library tells it.
    pub fn parameters(&self) -> Vec<Property> {
        use BoolParameter as B;
        use SizeParameter as S;
        let booleans = [
            ("allow_compat_mode", B::CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE),
            ("force_compat_mode", B::CUFILE_PARAM_FORCE_COMPAT_MODE),
            ("use_pci_p2pdma", B::CUFILE_PARAM_USE_PCIP2PDMA),
            ("prefer_iouring", B::CUFILE_PARAM_PREFER_IO_URING),
            ("force_odirect_mode", B::CUFILE_PARAM_FORCE_ODIRECT_MODE),
            ("parallel_io", B::CUFILE_PARAM_EXECUTION_PARALLEL_IO),
            ("use_poll_mode", B::CUFILE_PARAM_PROPERTIES_USE_POLL_MODE),
        ];
        let sizes = [
            ("max_io_threads", Kind::Count, 1.0, S::CUFILE_PARAM_EXECUTION_MAX_IO_THREADS),
            ("max_io_queue_depth", Kind::Count, 1.0, S::CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH),
            (
                "max_direct_io_size",
                Kind::Bytes,
                1024.0,
                S::CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB,
            ),
            (
                "per_buffer_cache_size",
                Kind::Bytes,
                1024.0,
                S::CUFILE_PARAM_PROPERTIES_PER_BUFFER_CACHE_SIZE_KB,
            ),
        ];
        let booleans = booleans.into_iter().filter_map(|(name, parameter)| {
            let value = self.bool_parameter(parameter)?;
            Some(Property::number(name, Kind::YesNo, f64::from(u8::from(value))))
        });
        let sizes = sizes.into_iter().filter_map(|(name, kind, scale, parameter)| {
            let value = self.size_parameter(parameter)?;
            Some(Property::number(name, kind, value as f64 * scale))
        });
        let level = self
            .string_parameter(StringParameter::CUFILE_PARAM_LOGGING_LEVEL)
            .map(|level| Property::text("logging level", level));
        booleans.chain(sizes).chain(level).collect()
    }

    /// Which path bytes take, and the evidence. Operations that the library counted, where its
    /// configuration enables that, prove it; otherwise it is what the driver's state makes
    /// possible.
    pub fn mode(&self) -> CuFileMode {
        self.judged(self.counts())
    }

    /// Which path the driver's state makes possible, whatever was counted of it.
    pub fn possible_mode(&self) -> CuFileMode {
        self.judged(None)
    }

    fn judged(&self, counts: Option<CuFileCounts>) -> CuFileMode {
        Facts {
            driver_version: self.properties.nvidia_fs_version,
            supported: self.properties.supported.clone(),
            p2p_supported: self.p2p_supported,
            forced_compatibility: self
                .bool_parameter(BoolParameter::CUFILE_PARAM_FORCE_COMPAT_MODE),
            p2p_switched_on: self.bool_parameter(BoolParameter::CUFILE_PARAM_USE_PCIP2PDMA),
            counts,
        }
        .judge()
    }

    /// Operations of this process counted so far, of all GPUs; `None` where nothing is counted.
    pub fn counts(&self) -> Option<CuFileCounts> {
        let get = self.library.functions.cuFileGetStatsL3?;
        if !self.version().is_some_and(|version| STATISTICS_VERSIONS.contains(&version)) {
            return None;
        }
        let mut stats = Padded::<sys::CUfileStatsLevel3_t>::zeroed();
        // SAFETY: the out-pointer is live, of the layout of these versions, with room to
        // spare; where statistics are off the call is refused.
        let status = unsafe { get(stats.as_mut_ptr()) };
        if status.code != 0 {
            return None;
        }
        let stats = &stats.value;
        let gpus = usize::try_from(stats.num_gpus).ok()?.min(stats.per_gpu_stats.len());
        let sum = stats.per_gpu_stats[..gpus].iter().fold(CuFileCounts::default(), |sum, gpu| {
            CuFileCounts {
                gds: sum.gds + gpu.n_nvfs_reads + gpu.n_nvfs_writes,
                p2p: sum.p2p + gpu.n_p2p_reads + gpu.n_p2p_writes,
                posix: sum.posix + gpu.n_posix_reads + gpu.n_posix_writes,
            }
        });
        Some(sum)
    }

    fn bool_parameter(&self, parameter: BoolParameter) -> Option<bool> {
        let get = self.library.functions.cuFileGetParameterBool?;
        let mut value = false;
        // SAFETY: the out-pointer is live; an unknown parameter is refused with a code.
        let status = unsafe { get(parameter, &mut value) };
        (status.code == 0).then_some(value)
    }

    fn size_parameter(&self, parameter: SizeParameter) -> Option<usize> {
        let get = self.library.functions.cuFileGetParameterSizeT?;
        let mut value = 0;
        // SAFETY: as in `bool_parameter`.
        let status = unsafe { get(parameter, &mut value) };
        (status.code == 0).then_some(value)
    }

    fn string_parameter(&self, parameter: StringParameter) -> Option<String> {
        let get = self.library.functions.cuFileGetParameterString?;
        let mut text = [0 as c_char; 512];
        // One byte is kept back, so that the text ends in NUL whatever the library does.
        // SAFETY: the array is live and at least as long as is said.
        let status = unsafe { get(parameter, text.as_mut_ptr(), text.len() as c_int - 1) };
        // SAFETY: the last byte is NUL.
        (status.code == 0).then(|| unsafe { crate::api::text_of(text.as_ptr()) })?
    }
}

fn refused(error: CuFileError) -> CuFileUnavailable {
    CuFileUnavailable {
        reason: format!(
            "{} failed: {} (code {}): {}",
            error.operation, error.name, error.code, error.text
        ),
        remedy: error
            .remedy
            .unwrap_or("see cufile.log; CUFILE_LOGGING_LEVEL=TRACE makes it tell more")
            .to_string(),
        code: Some(error.code),
    }
}

/// See the module's notes: opening the driver would close file descriptor 0.
fn refuse_half_configured(found: Option<&NvidiaFs>, nodes: bool) -> Result<(), CuFileUnavailable> {
    match found {
        Some(module) if module.device_count > 0 && !nodes => Err(CuFileUnavailable {
            reason: "the nvidia-fs module is loaded but its /dev/nvidia-fs* nodes are missing; \
                     opening cuFile's driver then closes file descriptor 0"
                .into(),
            remedy: "give the container the /dev/nvidia-fs* devices, or unload nvidia-fs".into(),
            code: None,
        }),
        _ => Ok(()),
    }
}

/// A library value with spare room behind it, for versions that write more.
#[repr(C)]
struct Padded<T> {
    value: T,
    spare: [u8; 4096],
}

/// Plain numbers, for which all-zero is a valid value.
///
/// # Safety
/// Only for such types.
unsafe trait PlainNumbers {}
// SAFETY: integers alone.
unsafe impl PlainNumbers for sys::CUfileStatsLevel3_t {}
// SAFETY: integers alone.
unsafe impl PlainNumbers for sys::CUfileDrvProps_t {}

impl<T: PlainNumbers> Padded<T> {
    fn zeroed() -> Box<Self> {
        // SAFETY: T is plain numbers by its trait, and so are the spare bytes.
        Box::new(unsafe { std::mem::zeroed() })
    }

    /// A pointer to the value that may be written through up to the spare's end.
    fn as_mut_ptr(&mut self) -> *mut T {
        ptr::from_mut(self).cast()
    }
}

fn read_properties(library: &Library) -> Result<(CuFileProperties, bool), CuFileError> {
    let mut raw = Padded::<sys::CUfileDrvProps_t>::zeroed();
    // SAFETY: the driver is open and the out-pointer is live, with room to spare.
    let status = unsafe { (library.functions.cuFileDriverGetProperties)(raw.as_mut_ptr()) };
    status.check("cuFileDriverGetProperties", || library.path.display().to_string())?;
    let raw = &raw.value;
    let has = |flag: Flag| raw.nvfs.dstatusflags & (1 << flag as u32) != 0;
    let controls = |bit: sys::CUfileDriverControlFlags| raw.nvfs.dcontrolflags & (1 << bit as u32);
    let properties = CuFileProperties {
        nvidia_fs_version: (raw.nvfs.major_version, raw.nvfs.minor_version),
        supported: STORAGE_KINDS
            .iter()
            .filter(|(flag, _)| has(*flag))
            .map(|(_, name)| *name)
            .collect(),
        allow_compatibility: controls(sys::CUfileDriverControlFlags::CU_FILE_ALLOW_COMPAT_MODE)
            != 0,
        poll: controls(sys::CUfileDriverControlFlags::CU_FILE_USE_POLL_MODE) != 0,
        direct_io_max_kib: raw.nvfs.max_direct_io_size as u64,
        device_cache_kib: raw.max_device_cache_size,
        pinned_memory_kib: raw.max_device_pinned_mem_size,
    };
    Ok((properties, has(Flag::CU_FILE_NVME_P2P_SUPPORTED)))
}

/// Keeps `cufile.log` out of the user's current folder, unless it is configured there.
fn send_log_to_cache(library: &Library) {
    let said = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    let configured =
        fs::read_to_string(CONFIGURATION_FILE).is_ok_and(|text| names_log_folder(&text));
    if said("CUFILE_LOGFILE_PATH") || said("CUFILE_ENV_PATH_JSON") || configured {
        return;
    }
    let (Some(set), Some(file)) = (library.functions.cuFileSetParameterString, log_file()) else {
        return;
    };
    // SAFETY: the driver is not open yet, as the call asks; the text is NUL-terminated.
    let status = unsafe { set(StringParameter::CUFILE_PARAM_ENV_LOGFILE_PATH, file.as_ptr()) };
    if status.code != 0 {
        tracing::debug!(code = status.code, "cuFile's log stays in the current folder");
    }
}

/// Whether a configuration has a log folder that is not commented out.
fn names_log_folder(configuration: &str) -> bool {
    configuration.lines().any(|line| line.trim_start().starts_with("\"dir\""))
}

fn log_file() -> Option<CString> {
    let folder: PathBuf = cache_folder()?;
    fs::create_dir_all(&folder).ok()?;
    CString::new(folder.join("cufile.log").as_os_str().as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_half_configured_machine_is_refused_before_it_does_harm() {
        let module = NvidiaFs { version: "2.26".into(), device_count: 16, reads: 0, writes: 0 };
        assert!(refuse_half_configured(Some(&module), false).is_err());
        assert!(refuse_half_configured(Some(&module), true).is_ok());
        assert!(refuse_half_configured(None, false).is_ok());
    }

    #[test]
    fn a_log_folder_counts_unless_it_is_commented_out() {
        assert!(names_log_folder("{ \"logging\": {\n  \"dir\": \"/var/log\",\n"));
        assert!(!names_log_folder("{ \"logging\": {\n  //\"dir\": \"/home/<xxx>\",\n"));
    }

    #[test]
    fn cufile_is_opened_or_says_why_not() {
        // Where there is no GPU this must end in a reason, never in a crash.
        match CuFile::open() {
            Ok(cufile) => assert!(!cufile.mode().evidence.is_empty()),
            Err(error) => {
                let shown = error.to_string();
                assert!(shown.contains("hint: ") && !error.reason.is_empty(), "{shown}");
            }
        }
    }
}
