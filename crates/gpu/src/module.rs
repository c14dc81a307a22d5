//! Machine code on a device, and the kernels in it.

use std::ffi::CString;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUfunction_attribute as Attribute};

use crate::api::{self, Code};
use crate::compiler::Cubin;
use crate::device::Device;
use crate::driver::check_in_drop;
use crate::error::{GpuError, Result};

/// A cubin loaded into a device's context; unloaded when the last function of it is gone.
pub struct Module {
    device: Arc<Device>,
    raw: sys::CUmodule,
    name: String,
}

// SAFETY: module handles may be used from any thread; the driver locks inside.
unsafe impl Send for Module {}
// SAFETY: as above; no method writes to the handle.
unsafe impl Sync for Module {}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module")
            .field("name", &self.name)
            .field("device", &self.device.ordinal())
            .finish_non_exhaustive()
    }
}

impl Module {
    /// Loads `cubin` into the context of `device`.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] for an image that is no ELF file,
    /// [`GpuError::Driver`] when the image does not fit the device or driver.
    pub fn load(device: &Arc<Device>, cubin: &Cubin) -> Result<Arc<Self>> {
        require_complete_elf(cubin)?;
        device.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the context is current; the image is an ELF file whose headers were
        // checked to lie inside it, and the driver copies what it needs.
        let code = unsafe { api::cuModuleLoadData(&mut raw, cubin.image.as_ptr().cast()) };
        crate::driver::check("cuModuleLoadData", code, || {
            format!(
                "device {} ({}), module `{}` compiled for {}",
                device.ordinal(),
                device.info().arch(),
                cubin.name,
                cubin.arch
            )
        })?;
        Ok(Arc::new(Self { device: Arc::clone(device), raw, name: cubin.name.clone() }))
    }

    /// The source's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The device the module is loaded on.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The kernel `name`: its symbol, so `extern "C"` kernels go by their plain name.
    ///
    /// # Errors
    /// [`GpuError::Driver`] when the module has no such kernel.
    pub fn function(self: &Arc<Self>, name: &str) -> Result<Function> {
        Function::find(self, name)
    }

    fn check(&self, call: &'static str, code: Code, symbol: &str) -> Result<()> {
        crate::driver::check(call, code, || {
            format!("device {}, `{symbol}` of module `{}`", self.device.ordinal(), self.name)
        })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: loaded by `load`, unloaded once; every function of it holds an Arc
            // of it.
            check_in_drop("cuModuleUnload", unsafe { api::cuModuleUnload(self.raw) });
        }
    }
}

fn symbol(operation: &'static str, name: &str) -> Result<CString> {
    CString::new(name)
        .map_err(|_| GpuError::invalid(operation, format!("a NUL byte in the name {name:?}")))
}

/// `cuModuleLoadData` gets no length: it reads as far as the image's own headers say. So an image
/// is only passed on when its tables lie inside it.
fn require_complete_elf(cubin: &Cubin) -> Result<()> {
    let refuse = |reason: &str| {
        Err(GpuError::invalid("Module::load", format!("the image of `{}` {reason}", cubin.name)))
    };
    let image = cubin.image.as_slice();
    if image.len() < 64 || image[..4] != *b"\x7fELF" || image[4] != 2 {
        return refuse("is no 64-bit ELF file");
    }
    let table_end = |offset_at, entry_bytes_at, count_at| {
        let entries =
            u64::from(read_u16(image, entry_bytes_at)) * u64::from(read_u16(image, count_at));
        read_u64(image, offset_at).checked_add(entries)
    };
    let inside = |end: Option<u64>| end.is_some_and(|end| end <= image.len() as u64);
    // Offsets of e_phoff, e_phentsize, e_phnum and e_shoff, e_shentsize, e_shnum in the
    // ELF64 header.
    if !inside(table_end(32, 54, 56)) || !inside(table_end(40, 58, 60)) {
        return refuse("is truncated");
    }
    Ok(())
}

fn read_u16(image: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([image[at], image[at + 1]])
}

fn read_u64(image: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&image[at..at + 8]);
    u64::from_le_bytes(bytes)
}

/// What the compiler made of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionInfo {
    /// Registers a thread.
    pub registers: u32,
    /// Static shared memory a block, in bytes.
    pub static_shared_bytes: u32,
    /// Local memory a thread (spilled registers, arrays), in bytes.
    pub local_bytes: u32,
    /// Threads a block may have at most.
    pub max_threads_per_block: u32,
    /// The bytes of each parameter, in order.
    pub parameter_bytes: Vec<usize>,
}

/// A kernel of a loaded module. Cheap to clone.
#[derive(Clone)]
pub struct Function {
    module: Arc<Module>,
    raw: sys::CUfunction,
    name: Arc<str>,
    info: Arc<FunctionInfo>,
}

// SAFETY: function handles may be used from any thread and live as long as their module,
// which this value holds.
unsafe impl Send for Function {}
// SAFETY: as above; no method writes to the handle.
unsafe impl Sync for Function {}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Function")
            .field("name", &self.name)
            .field("module", &self.module.name)
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

impl Function {
    fn find(module: &Arc<Module>, name: &str) -> Result<Self> {
        let symbol = symbol("Module::function", name)?;
        module.device.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the module is alive, the name NUL-terminated, the out-pointer live.
        let code = unsafe { api::cuModuleGetFunction(&mut raw, module.raw, symbol.as_ptr()) };
        module.check("cuModuleGetFunction", code, name)?;
        let attribute = |attribute| read_attribute(module, raw, name, attribute);
        let info = FunctionInfo {
            registers: attribute(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            static_shared_bytes: attribute(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            local_bytes: attribute(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            max_threads_per_block: attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            parameter_bytes: read_parameter_bytes(module, raw, name)?,
        };
        Ok(Self { module: Arc::clone(module), raw, name: name.into(), info: Arc::new(info) })
    }

    /// The kernel's symbol.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the compiler made of it.
    pub fn info(&self) -> &FunctionInfo {
        &self.info
    }

    /// The device it is loaded on.
    pub fn device(&self) -> &Arc<Device> {
        &self.module.device
    }

    /// Most dynamic shared memory that a launch can ask for: what a block of the device may have, less the kernel's static shared
    /// memory.
    pub fn dynamic_shared_bytes_max(&self) -> u32 {
        let most = self.device().info().shared_per_block_optin_bytes;
        most.saturating_sub(self.info.static_shared_bytes)
    }

    /// Lets launches ask for up to `bytes` of dynamic shared memory. Needed above 48 KiB, once.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] above [`dynamic_shared_bytes_max`](Self::dynamic_shared_bytes_max), [`GpuError::Driver`] when
    /// the driver refuses.
    pub fn set_max_dynamic_shared_bytes(&self, bytes: u32) -> Result<()> {
        const OPERATION: &str = "Function::set_max_dynamic_shared_bytes";
        let limit = self.dynamic_shared_bytes_max();
        let value = match i32::try_from(bytes) {
            Ok(value) if bytes <= limit => value,
            _ => {
                return Err(GpuError::invalid(
                    OPERATION,
                    format!("`{}` may have {limit} bytes, not {bytes}", self.name),
                ));
            }
        };
        self.device().bind()?;
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function is alive and its context current.
        let code = unsafe { api::cuFuncSetAttribute(self.raw, attribute, value) };
        self.check("cuFuncSetAttribute", code)
    }

    /// Blocks of `threads` threads with `dynamic_shared_bytes` each that one
    /// multiprocessor runs at a time: 0 when not even one fits.
    ///
    /// # Errors
    /// [`GpuError::Driver`] when the driver refuses the numbers.
    pub fn max_active_blocks_per_sm(&self, threads: u32, dynamic_shared_bytes: u32) -> Result<u32> {
        let block = i32::try_from(threads).map_err(|_| {
            GpuError::invalid("Function::max_active_blocks_per_sm", format!("{threads} threads"))
        })?;
        self.device().bind()?;
        let mut blocks = 0;
        // SAFETY: the function is alive, its context current, the out-pointer live.
        let code = unsafe {
            api::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut blocks, self.raw, block, dynamic_shared_bytes as usize,
            )
        };
        self.check("cuOccupancyMaxActiveBlocksPerMultiprocessor", code)?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }

    pub(crate) fn raw(&self) -> sys::CUfunction {
        self.raw
    }

    pub(crate) fn check(&self, call: &'static str, code: Code) -> Result<()> {
        self.module.check(call, code, &self.name)
    }
}

fn read_attribute(
    module: &Module,
    raw: sys::CUfunction,
    name: &str,
    attribute: Attribute,
) -> Result<u32> {
    let mut value = 0;
    // SAFETY: the function is alive, its context current, the out-pointer live.
    let code = unsafe { api::cuFuncGetAttribute(&mut value, attribute, raw) };
    module.check("cuFuncGetAttribute", code, name)?;
    Ok(u32::try_from(value).unwrap_or(0))
}

/// The driver has no count of parameters: it answers CUDA_ERROR_INVALID_VALUE for the
/// first index past the last.
fn read_parameter_bytes(module: &Module, raw: sys::CUfunction, name: &str) -> Result<Vec<usize>> {
    let mut sizes = Vec::new();
    loop {
        let (mut offset, mut bytes) = (0, 0);
        // SAFETY: the function is alive, its context current, the out-pointers live.
        let code = unsafe { api::cuFuncGetParamInfo(raw, sizes.len(), &mut offset, &mut bytes) };
        if code == api::INVALID_VALUE {
            return Ok(sizes);
        }
        module.check("cuFuncGetParamInfo", code, name)?;
        sizes.push(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cubin_of(image: Vec<u8>) -> Cubin {
        Cubin { name: "k".into(), arch: "sm_90".into(), image, warnings: String::new() }
    }

    #[test]
    fn an_image_that_is_not_a_whole_elf_file_never_reaches_the_driver() {
        assert!(require_complete_elf(&cubin_of(Vec::new())).is_err());
        assert!(require_complete_elf(&cubin_of(vec![0; 4096])).is_err());

        let mut image = vec![0; 4096];
        image[..5].copy_from_slice(b"\x7fELF\x02");
        image[40..48].copy_from_slice(&4000u64.to_le_bytes());
        image[58..60].copy_from_slice(&64u16.to_le_bytes());
        image[60..62].copy_from_slice(&1u16.to_le_bytes());
        assert!(require_complete_elf(&cubin_of(image.clone())).is_ok());
        image[60..62].copy_from_slice(&2u16.to_le_bytes());
        let error = require_complete_elf(&cubin_of(image)).expect_err("beyond the end");
        assert!(error.to_string().contains("truncated"), "{error}");
    }
}
