//! The settings under `headrace.`.

use std::ffi::CString;

use headrace_runner::ThreadShare;
use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting};
use pgrx::{PostgresGucEnum, pg_sys};

/// What happens to a query whose pipeline cannot finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
#[allow(non_camel_case_types)]
pub enum Fallback {
    /// PostgreSQL's own plan answers it.
    allow,
    /// It fails with the reason.
    forbid,
}

/// What runs pipelines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
#[allow(non_camel_case_types)]
pub enum Processor {
    /// A GPU for large tables, if the machine has one; else this session's own threads.
    auto,
    /// This session's own threads.
    cpu,
    /// A GPU.
    cuda,
}

pub static ENABLED: GucSetting<bool> = GucSetting::<bool>::new(true);
pub static ENABLE_JOIN: GucSetting<bool> = GucSetting::<bool>::new(true);
pub static ENABLE_SCAN: GucSetting<bool> = GucSetting::<bool>::new(true);
pub static ENABLE_DIRECT_READ: GucSetting<bool> = GucSetting::<bool>::new(true);
pub static FORCE: GucSetting<bool> = GucSetting::<bool>::new(false);
pub static FALLBACK: GucSetting<Fallback> = GucSetting::<Fallback>::new(Fallback::allow);
pub static MIN_TABLE_BLOCKS: GucSetting<i32> = GucSetting::<i32>::new(4096);
pub static MEMORY_LIMIT_KIB: GucSetting<i32> = GucSetting::<i32>::new(1 << 20);
pub static THREADS: GucSetting<i32> = GucSetting::<i32>::new(0);
pub static MAX_THREADS: GucSetting<i32> = GucSetting::<i32>::new(0);
pub static PROCESSOR: GucSetting<Processor> = GucSetting::<Processor>::new(Processor::auto);
pub static MIN_GPU_TABLE_BLOCKS: GucSetting<i32> = GucSetting::<i32>::new(32768);
pub static SERVICE_COMMAND: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(None);
pub static DEVICE_MEMORY_LIMIT_KIB: GucSetting<i32> = GucSetting::<i32>::new(0);
pub static STARTUP_COST: GucSetting<f64> = GucSetting::<f64>::new(500.0);

/// Makes them known to the server.
pub fn define() {
    booleans();
    let in_blocks = GucFlags::from_bits_retain(pg_sys::GUC_UNIT_BLOCKS as i32);
    let in_kib = GucFlags::from_bits_retain(pg_sys::GUC_UNIT_KB as i32);
    GucRegistry::define_int_guc(
        c"headrace.min_table_size",
        c"Size from which on a table is considered.",
        c"Starting threads takes longer than reading a small table.",
        &MIN_TABLE_BLOCKS,
        0,
        i32::MAX,
        GucContext::Userset,
        in_blocks,
    );
    GucRegistry::define_int_guc(
        c"headrace.memory_limit",
        c"Memory that a session's pipelines may take in all.",
        c"Groups that need more go to temporary files.",
        &MEMORY_LIMIT_KIB,
        64 << 10,
        i32::MAX,
        GucContext::Userset,
        in_kib,
    );
    GucRegistry::define_int_guc(
        c"headrace.threads",
        c"Threads that run a pipeline.",
        c"0: as many as the process may use cores.",
        &THREADS,
        0,
        1024,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"headrace.max_threads",
        c"Threads that run the pipelines of all sessions together.",
        c"0: the machine's cores. Each session has one at least.",
        &MAX_THREADS,
        0,
        1024,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_float_guc(
        c"headrace.startup_cost",
        c"The planner's estimate of what it costs to start a pipeline.",
        c"In units of seq_page_cost.",
        &STARTUP_COST,
        0.0,
        1e10,
        GucContext::Userset,
        GucFlags::EXPLAIN,
    );
    GucRegistry::define_enum_guc(
        c"headrace.fallback",
        c"What happens to a query whose pipeline cannot finish.",
        c"allow: PostgreSQL's own plan answers it; forbid: it fails with the reason.",
        &FALLBACK,
        GucContext::Userset,
        GucFlags::default(),
    );
    gpus();
    // SAFETY: the backend's thread; the name is a constant.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"headrace".as_ptr()) };
}

/// Of the process that owns the GPUs.
fn gpus() {
    GucRegistry::define_enum_guc(
        c"headrace.processor",
        c"What runs pipelines.",
        c"auto: a GPU for large tables if the machine has one; cpu: this session's threads; cuda: a GPU.",
        &PROCESSOR,
        GucContext::Userset,
        GucFlags::EXPLAIN,
    );
    GucRegistry::define_int_guc(
        c"headrace.min_gpu_table_size",
        c"Size from which on a table goes to the GPU by itself.",
        c"With headrace.processor = auto.",
        &MIN_GPU_TABLE_BLOCKS,
        0,
        i32::MAX,
        GucContext::Userset,
        GucFlags::from_bits_retain(pg_sys::GUC_UNIT_BLOCKS as i32),
    );
    GucRegistry::define_string_guc(
        c"headrace.service_command",
        c"Program that owns the GPUs, started when it is needed.",
        c"Empty: headrace-gpu-service beside the extension's library.",
        &SERVICE_COMMAND,
        GucContext::Suset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"headrace.device_memory_limit",
        c"Memory of each GPU that Headrace may take.",
        c"0: nine tenths of what is free. Heeded when the service starts.",
        &DEVICE_MEMORY_LIMIT_KIB,
        0,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::from_bits_retain(pg_sys::GUC_UNIT_KB as i32),
    );
}

fn booleans() {
    let define = |name, what, long, setting| {
        let (context, flags) = (GucContext::Userset, GucFlags::EXPLAIN);
        GucRegistry::define_bool_guc(name, what, long, setting, context, flags);
    };
    define(
        c"headrace.enabled",
        c"Lets the planner consider Headrace.",
        c"Off: every query is PostgreSQL's alone.",
        &ENABLED,
    );
    define(
        c"headrace.enable_join",
        c"Lets a pipeline look rows up in the tables that the streamed one is joined with.",
        c"",
        &ENABLE_JOIN,
    );
    define(
        c"headrace.enable_scan",
        c"Lets a pipeline give rows of a table or a join, where no grouping is its own.",
        c"",
        &ENABLE_SCAN,
    );
    define(
        c"headrace.enable_direct_read",
        c"Lets blocks that are visible to everybody be read from the table's files.",
        c"Off: every block is read through shared buffers.",
        &ENABLE_DIRECT_READ,
    );
    define(
        c"headrace.force",
        c"Takes a pipeline wherever one is possible, whatever it costs.",
        c"For tests.",
        &FORCE,
    );
}

/// Threads that run a pipeline.
pub fn threads() -> usize {
    let max = positive(&MAX_THREADS).unwrap_or(usize::MAX);
    positive(&THREADS).unwrap_or_else(cores).min(max)
}

/// What the pipelines of all sessions have together. The folder is one for files that processes of the server
/// share, which base backups leave out.
pub fn thread_share() -> ThreadShare {
    let threads = positive(&MAX_THREADS).unwrap_or_else(cores);
    ThreadShare { file: "pg_dynshmem/headrace".into(), threads }
}

fn positive(setting: &GucSetting<i32>) -> Option<usize> {
    usize::try_from(setting.get()).ok().filter(|number| *number > 0)
}

/// Cores that the process may use.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
