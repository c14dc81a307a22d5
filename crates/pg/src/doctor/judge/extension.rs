//! Whether the extension exists, is enabled, and has a processor to run on.

use headrace_doctor::{Finding, Known};

use super::super::facts::{Devices, Facts, SettingFact, gb};
use super::server::THROUGH_SERVER;

/// The major versions for which the extension is built.
const MAJOR_VERSIONS: std::ops::RangeInclusive<i32> = 15..=18;

const EVERY_QUERY: &str = "every query runs with PostgreSQL's own plan";

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![extension(facts)];
    if facts.extension.is_some() {
        findings.extend(turned_off(facts));
        findings.extend(facts.devices.iter().flat_map(|devices| gpus(facts, devices)));
    }
    findings
}

fn extension(facts: &Facts) -> Finding {
    let broken = |found: &str, remedy: &str| {
        Finding::broken("extension headrace", found, EVERY_QUERY, remedy)
    };
    match (&facts.extension, &facts.extension_available) {
        (Some(version), _) if !facts.extension_settings.is_empty() => {
            Finding::ok("extension headrace", format!("{version}, loaded by new sessions"))
        }
        (Some(version), _) => broken(
            &format!("{version}, but new sessions do not load its library"),
            "as a superuser: select headrace.preload(true)",
        ),
        (None, Some(version)) => broken(
            &format!("{version} is installed, but not created in database {}", facts.database),
            "as a superuser: CREATE EXTENSION headrace",
        ),
        (None, None) if MAJOR_VERSIONS.contains(&(facts.version_number / 10_000)) => broken(
            "not installed",
            "on the server's machine, as root: make install-postgres; then CREATE EXTENSION headrace",
        ),
        (None, None) => broken(
            &format!("not installed, and there is none for PostgreSQL {}", facts.version),
            &format!(
                "headrace pg export, and query the file; or PostgreSQL {} to {}",
                MAJOR_VERSIONS.start(),
                MAJOR_VERSIONS.end()
            ),
        ),
    }
}

fn setting<'a>(facts: &'a Facts, name: &str) -> &'a str {
    facts.extension_settings.get(name).map_or("", |setting| setting.value.as_str())
}

/// Every disabled switch of the extension; `headrace.force` is for tests.
fn turned_off(facts: &Facts) -> Vec<Finding> {
    let why = |name: &str| match name {
        "headrace.enabled" => EVERY_QUERY,
        "headrace.enable_direct_read" => THROUGH_SERVER,
        "headrace.enable_join" => "joins run with PostgreSQL's own plan",
        "headrace.enable_scan" => "rows without a grouping come from PostgreSQL's own plan",
        _ => "what it is for runs with PostgreSQL's own plan",
    };
    let off = facts
        .extension_settings
        .iter()
        .filter(|(name, setting)| name.starts_with("headrace.enable") && setting.value == "off");
    off.map(|(name, _)| Finding::slow(name, "off", why(name), format!("SET {name} = on"))).collect()
}

fn gpus(facts: &Facts, devices: &Known<Devices>) -> Vec<Finding> {
    let processor = setting(facts, "headrace.processor");
    let Devices { devices, notices } = match devices.as_result() {
        Ok(devices) => devices,
        Err(unknown) => return vec![Finding::unknown("GPU", unknown)],
    };
    if devices.is_empty() {
        let found = match notices.as_slice() {
            [] => "none: pipelines run on the CPU's cores".into(),
            notices => format!("none, pipelines run on the CPU's cores: {}", notices.join("; ")),
        };
        let none = match processor {
            "cuda" => Finding::slow(
                "GPU",
                found,
                "headrace.processor = cuda: every query asks for one first",
                "SET headrace.processor = auto",
            ),
            _ => Finding::ok("GPU", found),
        };
        return vec![none];
    }
    let mut findings: Vec<Finding> = devices
        .iter()
        .map(|device| {
            let used = device.memory_used_bytes.map_or(String::new(), |bytes| {
                format!(", {} of it taken now", gb(bytes.unsigned_abs()))
            });
            let memory = gb(device.memory_bytes.unsigned_abs());
            Finding::ok("GPU", format!("{}, {memory} of memory{used}", device.name))
        })
        .collect();
    findings.push(Finding::ok(
        "GPU service",
        "one process owns the GPUs for all sessions: MPS, which shares them between processes, brings nothing",
    ));
    findings.push(processor_of(facts, processor));
    findings
}

/// Which tables go to the available GPUs.
fn processor_of(facts: &Facts, processor: &str) -> Finding {
    let subject = "headrace.processor";
    if processor == "cpu" {
        let why = "the GPUs of this machine are not used";
        return Finding::slow(subject, "cpu", why, "SET headrace.processor = auto");
    }
    let smallest = facts.extension_settings.get("headrace.min_gpu_table_size");
    let smallest = smallest.and_then(SettingFact::bytes).unwrap_or(0);
    let large = facts.tables.iter().filter(|table| table.heap_bytes >= smallest).count();
    let found = match processor {
        "auto" => format!(
            "auto: tables from {} on (headrace.min_gpu_table_size), {large} of those below, go to the GPU \
             where it is faster than the session's threads; EXPLAIN (ANALYZE, VERBOSE) says why not",
            gb(smallest)
        ),
        other => format!("{other}: every table goes to the GPU"),
    };
    Finding::ok(subject, found)
}
