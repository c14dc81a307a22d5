//! Ranges on a profiler's timeline: what the program did meanwhile.
//!
//! Implements NVTX version 3's injection protocol, which needs no NVIDIA library: a profiler that
//! starts the program sets `NVTX_INJECTION64_PATH` to its own library, which is opened at the first
//! range and puts its functions into our tables. Intended for Nsight Systems (`nsys profile
//! --trace=nvtx,cuda`), Nsight Compute (`ncu --nvtx`), compute-sanitizer (`--nvtx yes`) and other
//! tools that inject this way (Score-P, TAU). A tool that attaches to a running program later is
//! not seen.
//!
//! Without a profiler a range costs a load and a branch.
//!
//! ```
//! let _range = headrace_gpu::nvtx::range("read"); // until the end of the scope
//! ```

use std::env;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use cudarc::nvtx::sys::{
    nvtxDomainHandle_t, nvtxEventAttributes_t, nvtxEventAttributes_v2_payload_t, nvtxMessageType_t,
    nvtxMessageValue_t,
};

use crate::library::SharedLibrary;

/// Names the profiler's library.
const INJECTION_VARIABLE: &str = "NVTX_INJECTION64_PATH";

/// The version of the protocol that is spoken here (`NVTX_VERSION`).
const PROTOCOL_VERSION: u32 = 3;

/// `NVTX_VERSION` in the attributes of an event, of the attributes' second layout.
const ATTRIBUTES_VERSION: u16 = 3;

/// The domain that our ranges are shown under.
const DOMAIN: &CStr = c"headrace";

/// Slots of the largest module of NVTX; the first slot of each is never used.
const MODULE_SLOTS_MAX: usize = 16;

/// Slots of each module (`NvtxCallbackModule`), by its number less one: core, CUDA driver, OpenCL,
/// CUDA runtime, domains, synchronisation. A tool wants all of them, used or not, and of these sizes.
const MODULE_SLOTS: [usize; 6] = [MODULE_SLOTS_MAX, 9, 15, 7, MODULE_SLOTS_MAX, 7];

const DOMAINS: usize = 4;

/// Numbers of export tables (`NvtxExportTableID`).
const TABLE_CALLBACKS: u32 = 1;
const TABLE_VERSION_INFO: u32 = 3;

/// Slots of the domain module (`NvtxCallbackIdCore2`).
const DOMAIN_MARK_EX: usize = 1;
const DOMAIN_RANGE_PUSH_EX: usize = 4;
const DOMAIN_RANGE_POP: usize = 5;
const DOMAIN_CREATE_A: usize = 12;

/// A range on this thread's timeline; ends when dropped. It must end on the thread it
/// began on, so it cannot be sent.
#[must_use = "the range ends when the guard is dropped"]
#[derive(Debug)]
pub struct RangeGuard {
    pushed: bool,
    _this_thread: PhantomData<*const ()>,
}

/// Begins a range of that name on the calling thread's timeline.
pub fn range(name: &str) -> RangeGuard {
    let pushed = tool().is_some_and(|tool| tool.push(name));
    RangeGuard { pushed, _this_thread: PhantomData }
}

impl Drop for RangeGuard {
    fn drop(&mut self) {
        if self.pushed
            && let Some(tool) = tool()
        {
            tool.pop();
        }
    }
}

/// Puts a mark of that name on the calling thread's timeline.
pub fn mark(name: &str) {
    if let Some(tool) = tool() {
        tool.mark(name);
    }
}

/// The profiler, if there is one; looked for once per process.
fn tool() -> Option<&'static Tool> {
    static TOOL: OnceLock<Option<Tool>> = OnceLock::new();
    TOOL.get_or_init(|| {
        let path = env::var_os(INJECTION_VARIABLE).filter(|path| !path.is_empty())?;
        match Tool::load(&path) {
            Ok(tool) => Some(tool),
            Err(reason) => {
                tracing::warn!(reason, "the profiler's NVTX library is not used");
                None
            }
        }
    })
    .as_ref()
}

/// A function of a tool, of a type that its slot says.
type RawFunction = *mut c_void;

/// The functions of one module, filled in by the tool.
struct FunctionTable([AtomicPtr<c_void>; MODULE_SLOTS_MAX]);

impl FunctionTable {
    const fn new() -> Self {
        Self([const { AtomicPtr::new(ptr::null_mut()) }; MODULE_SLOTS_MAX])
    }

    /// The protocol's view of the table: an array of `slots` pointers to function pointers, and a
    /// null. Leaked: a tool may keep it.
    fn view(&'static self, slots: usize) -> *mut *mut RawFunction {
        let mut slots: Vec<*mut RawFunction> =
            self.0[..slots].iter().map(AtomicPtr::as_ptr).collect();
        slots.push(ptr::null_mut());
        Box::leak(slots.into_boxed_slice()).as_mut_ptr()
    }

    fn get(&self, slot: usize) -> Option<RawFunction> {
        let function = self.0[slot].load(Ordering::Acquire);
        (!function.is_null()).then_some(function)
    }
}

static MODULES: [FunctionTable; MODULE_SLOTS.len()] =
    [const { FunctionTable::new() }; MODULE_SLOTS.len()];

/// `NvtxExportTableCallbacks`.
#[repr(C)]
struct Callbacks {
    struct_bytes: usize,
    get_module_function_table:
        unsafe extern "C" fn(c_uint, *mut *mut *mut RawFunction, *mut c_uint) -> c_int,
}

/// `NvtxExportTableVersionInfo`.
#[repr(C)]
struct VersionInfo {
    struct_bytes: usize,
    version: u32,
    reserved: u32,
    set_injection_version: unsafe extern "C" fn(u32),
}

static CALLBACKS: Callbacks =
    Callbacks { struct_bytes: size_of::<Callbacks>(), get_module_function_table };

static VERSION_INFO: VersionInfo = VersionInfo {
    struct_bytes: size_of::<VersionInfo>(),
    version: PROTOCOL_VERSION,
    reserved: 0,
    set_injection_version,
};

/// Gives the tool a module's table: 1 when there is one.
///
/// # Safety
/// The out-pointers must be null or live.
unsafe extern "C" fn get_module_function_table(
    module: c_uint,
    table: *mut *mut *mut RawFunction,
    functions: *mut c_uint,
) -> c_int {
    let index = (module as usize).wrapping_sub(1);
    let Some(&slots) = MODULE_SLOTS.get(index) else { return 0 };
    if !functions.is_null() {
        // SAFETY: live by this function's contract.
        unsafe { *functions = slots as c_uint };
    }
    if !table.is_null() {
        // SAFETY: as above.
        unsafe { *table = MODULES[index].view(slots) };
    }
    1
}

/// The protocol lets the tool say its version; nothing depends on it.
unsafe extern "C" fn set_injection_version(_version: u32) {}

/// What the tool asks for its tables with.
unsafe extern "C" fn get_export_table(id: u32) -> *const c_void {
    match id {
        TABLE_CALLBACKS => (&raw const CALLBACKS).cast(),
        TABLE_VERSION_INFO => (&raw const VERSION_INFO).cast(),
        _ => ptr::null(),
    }
}

type GetExportTable = unsafe extern "C" fn(u32) -> *const c_void;
type Initialise = unsafe extern "C" fn(GetExportTable) -> c_int;

type PushEx = unsafe extern "C" fn(nvtxDomainHandle_t, *const nvtxEventAttributes_t) -> c_int;
type Pop = unsafe extern "C" fn(nvtxDomainHandle_t) -> c_int;
type MarkEx = unsafe extern "C" fn(nvtxDomainHandle_t, *const nvtxEventAttributes_t);
type CreateDomain = unsafe extern "C" fn(*const c_char) -> nvtxDomainHandle_t;

/// The profiler functions that are used here.
#[derive(Debug)]
struct Tool {
    domain: nvtxDomainHandle_t,
    /// Both or neither: an unpopped push would shift every later range.
    push_pop: Option<(PushEx, Pop)>,
    mark: Option<MarkEx>,
}

// SAFETY: the domain is a token of the tool's, and NVTX functions may be called from any
// thread at a time.
unsafe impl Send for Tool {}
// SAFETY: as above.
unsafe impl Sync for Tool {}

impl Tool {
    fn load(path: &OsStr) -> Result<Self, String> {
        let library = SharedLibrary::open(path)?;
        // SAFETY: that is the type that the protocol gives the function.
        let initialise: Initialise = unsafe { library.function(c"InitializeInjectionNvtx2") }?;
        Self::attach(initialise)
    }

    /// Lets the tool fill the tables, and takes from them what is used.
    fn attach(initialise: Initialise) -> Result<Self, String> {
        // SAFETY: the protocol's one call, with a function that answers for the tables.
        if unsafe { initialise(get_export_table) } == 0 {
            return Err("its initialisation failed".into());
        }
        // SAFETY: the slots' types are those of the protocol.
        unsafe {
            let create_domain: Option<CreateDomain> = function(&MODULES[DOMAINS], DOMAIN_CREATE_A);
            let push: Option<PushEx> = function(&MODULES[DOMAINS], DOMAIN_RANGE_PUSH_EX);
            let pop: Option<Pop> = function(&MODULES[DOMAINS], DOMAIN_RANGE_POP);
            Ok(Self {
                // Null is the domain of those who have none.
                domain: create_domain.map_or(ptr::null_mut(), |create| create(DOMAIN.as_ptr())),
                push_pop: push.zip(pop),
                mark: function(&MODULES[DOMAINS], DOMAIN_MARK_EX),
            })
        }
    }

    fn push(&self, name: &str) -> bool {
        let Some((push, _)) = self.push_pop else {
            return false;
        };
        let name = c_text(name);
        let attributes = attributes(&name);
        // SAFETY: the attributes and their text are live through the call, which copies
        // what it keeps.
        unsafe { push(self.domain, &attributes) };
        true
    }

    fn pop(&self) {
        if let Some((_, pop)) = self.push_pop {
            // SAFETY: pairs with a push on this thread.
            unsafe { pop(self.domain) };
        }
    }

    fn mark(&self, name: &str) {
        if let Some(mark) = self.mark {
            let name = c_text(name);
            let attributes = attributes(&name);
            // SAFETY: as in `push`.
            unsafe { mark(self.domain, &attributes) };
        }
    }
}

/// The function in `slot` as an `F`, if the tool put one there.
///
/// # Safety
/// `F` must be the function pointer type of that slot.
unsafe fn function<F: Copy>(table: &FunctionTable, slot: usize) -> Option<F> {
    const {
        assert!(size_of::<F>() == size_of::<RawFunction>());
    }
    // SAFETY: equal sizes, not null, and the type is the slot's by this contract.
    table.get(slot).map(|function| unsafe { std::mem::transmute_copy(&function) })
}

/// A name ends at its first NUL.
fn c_text(name: &str) -> CString {
    let bytes: Vec<u8> = name.bytes().take_while(|&byte| byte != 0).collect();
    CString::new(bytes).unwrap_or_default()
}

fn attributes(name: &CStr) -> nvtxEventAttributes_t {
    nvtxEventAttributes_t {
        version: ATTRIBUTES_VERSION,
        size: size_of::<nvtxEventAttributes_t>() as u16,
        category: 0,
        colorType: 0,
        color: 0,
        payloadType: 0,
        reserved0: 0,
        payload: nvtxEventAttributes_v2_payload_t { ullValue: 0 },
        messageType: nvtxMessageType_t::NVTX_MESSAGE_TYPE_ASCII as i32,
        message: nvtxMessageValue_t { ascii: name.as_ptr() },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Mutex;

    use super::*;

    static HEARD: Mutex<Vec<String>> = Mutex::new(Vec::new());

    fn heard(what: impl Into<String>) {
        HEARD.lock().unwrap().push(what.into());
    }

    unsafe fn message_of(attributes: *const nvtxEventAttributes_t) -> String {
        // SAFETY: the caller passes live attributes with an ASCII message.
        unsafe {
            assert_eq!(usize::from((*attributes).size), size_of::<nvtxEventAttributes_t>());
            assert_eq!((*attributes).messageType, 1);
            CStr::from_ptr((*attributes).message.ascii).to_string_lossy().into_owned()
        }
    }

    unsafe extern "C" fn create(name: *const c_char) -> nvtxDomainHandle_t {
        // SAFETY: the protocol passes a NUL-terminated name.
        heard(format!("domain {}", unsafe { CStr::from_ptr(name) }.to_string_lossy()));
        0x77 as nvtxDomainHandle_t
    }
    unsafe extern "C" fn push(
        domain: nvtxDomainHandle_t,
        attributes: *const nvtxEventAttributes_t,
    ) -> c_int {
        // SAFETY: called with live attributes.
        heard(format!("push {} {}", domain as usize, unsafe { message_of(attributes) }));
        0
    }
    unsafe extern "C" fn pop(_domain: nvtxDomainHandle_t) -> c_int {
        heard("pop");
        0
    }
    unsafe extern "C" fn mark_ex(_: nvtxDomainHandle_t, attributes: *const nvtxEventAttributes_t) {
        // SAFETY: called with live attributes.
        heard(format!("mark {}", unsafe { message_of(attributes) }));
    }

    /// A tool, as its own library would implement it.
    unsafe extern "C" fn initialise(get: GetExportTable) -> c_int {
        // SAFETY: the tables are those of this module, of the types that their numbers say;
        // slots below the count are live pointers to function pointers.
        unsafe {
            let version = &*get(TABLE_VERSION_INFO).cast::<VersionInfo>();
            assert_eq!((version.struct_bytes, version.version), (24, 3));
            assert!(get(2).is_null());
            let callbacks = &*get(TABLE_CALLBACKS).cast::<Callbacks>();
            assert_eq!(callbacks.struct_bytes, 16);
            let (mut table, mut count) = (ptr::null_mut(), 0);
            for module in [0, 7] {
                let found = (callbacks.get_module_function_table)(module, &mut table, &mut count);
                assert_eq!(found, 0);
            }
            for (module, slots) in (1..).zip(MODULE_SLOTS) {
                let found = (callbacks.get_module_function_table)(module, &mut table, &mut count);
                assert_eq!((found, count as usize), (1, slots));
                assert!((*table.add(slots)).is_null());
            }
            let domains = DOMAINS as c_uint + 1;
            (callbacks.get_module_function_table)(domains, &mut table, &mut count);
            **table.add(DOMAIN_CREATE_A) = create as RawFunction;
            **table.add(DOMAIN_RANGE_PUSH_EX) = push as RawFunction;
            **table.add(DOMAIN_RANGE_POP) = pop as RawFunction;
            **table.add(DOMAIN_MARK_EX) = mark_ex as RawFunction;
        }
        1
    }

    unsafe extern "C" fn fail(_get: GetExportTable) -> c_int {
        0
    }

    #[test]
    fn a_tool_hears_what_is_said_to_it() {
        let tool = Tool::attach(initialise).unwrap();
        assert!(tool.push("read"));
        tool.mark("cut\0here");
        tool.pop();
        let heard = HEARD.lock().unwrap().clone();
        assert_eq!(heard, ["domain headrace", "push 119 read", "mark cut", "pop"]);
        assert!(Tool::attach(fail).unwrap_err().contains("initialisation"));
    }

    #[test]
    fn without_a_profiler_nothing_happens() {
        // Whoever runs the tests under a profiler has one.
        if env::var_os(INJECTION_VARIABLE).is_none() {
            assert!(!range("read").pushed);
            mark("here");
        }
    }

    #[test]
    fn a_library_that_is_no_tool_is_refused() {
        let error = Tool::load(OsStr::new("libc.so.6")).unwrap_err();
        assert!(error.contains("InitializeInjectionNvtx2"), "{error}");
    }
}
