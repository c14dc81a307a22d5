//! What EXPLAIN shows: of the node, and of queries that have none, why not.

use std::cell::RefCell;
use std::ffi::{CStr, c_char};

use headrace_flow::RaceReport;
use headrace_ir::{Program, Sink};
use headrace_runner::RunReport;
use pgrx::pg_sys::{self, ExplainState};

use crate::executor::{Blocks, Own, Ran, Read};
use crate::{nodes, version};

thread_local! {
    /// Why parts of the statement that is being planned are PostgreSQL's alone.
    static REASONS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Reasons that are kept of one statement.
const REASONS_MAX: usize = 16;

/// Takes note of why there is no path.
pub fn note(reason: String) {
    pgrx::debug1!("Headrace not used: {reason}");
    REASONS.with_borrow_mut(|reasons| {
        if reasons.len() < REASONS_MAX && !reasons.contains(&reason) {
            reasons.push(reason);
        }
    });
}

static mut PREVIOUS: pg_sys::ExplainOneQuery_hook_type = None;

/// From now on EXPLAIN VERBOSE says why not.
///
/// # Safety
/// The backend's thread, once a process.
pub unsafe fn install() {
    PREVIOUS = pg_sys::ExplainOneQuery_hook;
    pg_sys::ExplainOneQuery_hook = Some(explain_one_query);
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn explain_one_query(
    query: *mut pg_sys::Query,
    options: i32,
    into: *mut pg_sys::IntoClause,
    es: *mut ExplainState,
    text: *const c_char,
    parameters: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
) {
    REASONS.take();
    match PREVIOUS {
        Some(previous) => previous(query, options, into, es, text, parameters, environment),
        None => version::explain_query(query, options, into, es, text, parameters, environment),
    }
    let reasons = REASONS.take();
    if !(*es).verbose || reasons.is_empty() {
        return;
    }
    pg_sys::ExplainOpenGroup(c"Headrace".as_ptr(), std::ptr::null(), true, es);
    for reason in reasons {
        show(es, c"Headrace not used", &reason);
    }
    pg_sys::ExplainCloseGroup(c"Headrace".as_ptr(), std::ptr::null(), true, es);
}

pub unsafe fn show(es: *mut ExplainState, label: &CStr, value: &str) {
    pg_sys::ExplainPropertyText(label.as_ptr(), nodes::c_string(value).as_ptr(), es);
}

pub unsafe fn show_number(es: *mut ExplainState, label: &CStr, unit: Option<&CStr>, value: u64) {
    let unit = unit.map_or(std::ptr::null(), CStr::as_ptr);
    pg_sys::ExplainPropertyUInteger(label.as_ptr(), unit, value, es);
}

pub unsafe fn show_float(
    es: *mut ExplainState,
    label: &CStr,
    unit: &CStr,
    value: f64,
    digits: i32,
) {
    pg_sys::ExplainPropertyFloat(label.as_ptr(), unit.as_ptr(), value, digits, es);
}

unsafe fn show_time(es: *mut ExplainState, label: &CStr, milliseconds: f64) {
    if (*es).timing {
        show_float(es, label, c"ms", milliseconds, 3);
    }
}

/// What a program does with rows.
pub unsafe fn steps(program: &Program, es: *mut ExplainState) {
    let steps = program.answer.steps.iter().map(|step| program.step_line(step));
    let lines: Vec<String> = steps.chain([Program::sink_line(&program.answer.sink)]).collect();
    let texts: Vec<_> = lines.iter().map(|line| nodes::c_string(line)).collect();
    let list = nodes::list(texts.iter().map(|text| text.as_ptr().cast_mut()));
    match (*es).format == pg_sys::ExplainFormat::EXPLAIN_FORMAT_TEXT {
        // A line each, since expressions contain commas.
        true => lines.iter().for_each(|line| show(es, c"Step", line)),
        false => pg_sys::ExplainPropertyList(c"Steps".as_ptr(), list, es),
    }
}

/// The node's own lines.
pub unsafe fn node(own: &Own, es: *mut ExplainState) {
    let program = &own.plan.program;
    show(es, c"Streamed Table", &program.answer.source.table);
    if own.plan.parts.len() > 1 {
        show_number(es, c"Parts", None, own.plan.parts.len() as u64);
    }
    steps(program, es);
    if !(*es).analyze {
        return;
    }
    match (&own.why_not, &own.ran) {
        (Some(reason), _) => {
            show(es, c"Processor", "PostgreSQL, by the first of the plans below");
            show(es, c"Why Not", reason);
        }
        (None, Some(ran)) => show(es, c"Processor", &processor(ran)),
        (None, None) => return,
    }
    if let Some(ran) = &own.ran {
        place(ran, es);
        match &ran.read {
            Read::Blocks(read) => {
                blocks(read, es);
                kept(ran, es);
            }
            Read::Files { files, ruled_out } => files_read(*files, *ruled_out, es),
        }
        if let Some(report) = &ran.report {
            times(ran, report, program, es);
        }
    }
}

/// Files of a foreign table.
pub unsafe fn files_read(files: u64, ruled_out: u64, es: *mut ExplainState) {
    show_number(es, c"Files", None, files);
    if ruled_out > 0 {
        show_number(es, c"Files Ruled Out By Their Folders", None, ruled_out);
    }
}

fn processor(ran: &Ran) -> String {
    let processor = ran.report.as_ref().map_or("cpu", |report| report.streamed.processor.as_str());
    match ran.served {
        Some(_) => format!("{processor} (service)"),
        None => processor.into(),
    }
}

/// Which GPU, or why none. What follows from a setting or the machine is told by VERBOSE alone.
unsafe fn place(ran: &Ran, es: *mut ExplainState) {
    if let Some(served) = &ran.served {
        if let Some(device) = &served.device {
            show(es, c"Device", device);
        }
        show_time(es, c"Queued", served.queued_ms);
    }
    let refused = ran.report.as_ref().and_then(|report| report.streamed.processor_why_not.as_ref());
    if let Some(why) = refused {
        show(es, c"Why Not GPU", why);
    }
    if let Some(why) = ran.why_not_service.as_ref().filter(|_| ran.service_failed || (*es).verbose)
    {
        show(es, c"Why Not GPU", why);
    }
}

unsafe fn blocks(read: &Blocks, es: *mut ExplainState) {
    show_number(es, c"Direct Blocks", None, read.direct());
    show_number(es, c"Blocks Through Shared Buffers", None, read.server());
    if let Some(reason) = &read.why_not_direct {
        show(es, c"Why Not Direct", reason);
    }
    let reasons = [
        (c"Of These Not All-Visible", read.listed.not_visible),
        (c"Of These Newer In Shared Buffers", read.listed.dirty),
        (c"Of These Rerouted", read.rerouted),
    ];
    for (label, blocks) in reasons {
        if blocks > 0 {
            show_number(es, label, None, blocks);
        }
    }
    if let Some(why) = &read.rerouted_why {
        show(es, c"First Rerouted", why);
    }
}

/// Direct blocks that nobody read: a GPU had kept their rows.
unsafe fn kept(ran: &Ran, es: *mut ExplainState) {
    let bytes =
        ran.report.as_ref().map_or(0, |report| report.streamed.race.bytes_by_path.resident_device);
    if bytes > 0 {
        show_number(es, c"Of These In GPU Memory", None, bytes / u64::from(pg_sys::BLCKSZ));
    }
}

/// Threads of the CPU, which follow from what other sessions do, as times do.
unsafe fn threads(race: &RaceReport, es: *mut ExplainState) {
    if !(*es).timing || race.consumers == 0 {
        return;
    }
    show_number(es, c"Threads", None, race.consumers as u64);
    if race.consumers_min < race.consumers {
        show_number(es, c"Threads At Least", None, race.consumers_min as u64);
    }
}

/// What the race's stages did, beside one another.
unsafe fn stages(race: &RaceReport, es: *mut ExplainState) {
    let stages = [
        (c"Reading", race.read_busy_ns),
        (c"Reading Waits", race.read_wait_ns),
        (c"Copying To The Device", race.h2d_ns),
        (c"Kernels", race.kernel_ns),
        (c"Copying From The Device", race.d2h_ns),
        (c"Cores' Time", race.execute_busy_ns),
        (c"Cores' Waits", race.execute_wait_ns),
    ];
    for (label, ns) in stages {
        if (*es).verbose && ns > 0 {
            show_time(es, label, ns as f64 / 1e6);
        }
    }
}

unsafe fn times(ran: &Ran, report: &RunReport, program: &Program, es: *mut ExplainState) {
    show_number(es, c"Rows In", None, report.streamed.rows_in);
    let out = match program.answer.sink {
        Sink::Rows { .. } | Sink::Sorted { .. } => c"Rows Out",
        _ => c"Groups",
    };
    show_number(es, out, None, report.streamed.rows_out);
    if report.streamed.pruned_batches > 0 {
        show_number(es, c"Record Batches Ruled Out", None, report.streamed.pruned_batches);
    }
    let (bytes, label) = match &ran.read {
        Read::Blocks(blocks) => {
            let read = blocks.listed.direct + blocks.listed.server;
            (read * u64::from(pg_sys::BLCKSZ), c"Heap Read")
        }
        Read::Files { .. } => {
            let bytes = report.streamed.race.bytes_by_path;
            show_number(es, c"Bytes", None, bytes.total());
            if bytes.resident_device > 0 {
                show_number(es, c"Of These In GPU Memory", None, bytes.resident_device);
            }
            (bytes.total(), c"Read")
        }
    };
    for build in &report.builds {
        show(es, c"Build", build);
    }
    threads(&report.streamed.race, es);
    show_time(es, c"Builds", report.build_ms);
    show_time(es, c"Bind", report.streamed.bind_ms);
    show_time(es, c"Race", report.streamed.race.wall_ns as f64 / 1e6);
    stages(&report.streamed.race, es);
    show_time(es, c"Finish", report.streamed.finish_ms);
    show_time(es, c"Wall", ran.wall.as_secs_f64() * 1e3);
    if (*es).timing && report.streamed.race.wall_ns > 0 {
        let speed = bytes as f64 / report.streamed.race.wall_ns as f64;
        show_float(es, label, c"GB/s", speed, 2);
        if let Some(bottleneck) = report.streamed.race.bottleneck() {
            show(es, c"Bottleneck", &bottleneck.to_string());
        }
    }
    if (*es).verbose {
        report
            .streamed
            .race
            .path_reasons
            .iter()
            .for_each(|reason| show(es, c"Read Otherwise", reason));
    }
}
