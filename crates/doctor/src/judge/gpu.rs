//! The meaning of the facts about GPUs.

use crate::facts::{GpuFact, GpuFacts, Known};
use crate::finding::Finding;
use crate::system::PciLink;

/// A copy from pinned memory reaches some 85 to 90% of the link rate before packet headers; below
/// this share something else is the limit.
const LINK_SHARE_MIN: f64 = 0.75;

/// Below this share of its data sheet, device memory is limited by something else (clocks, other
/// work).
const MEMORY_SHARE_MIN: f64 = 0.7;

/// Below this share of their sum, several links share a limit.
const TOGETHER_SHARE_MIN: f64 = 0.9;

/// Below this share of free device memory there is little room for columns and slots.
const FREE_SHARE_MIN: f64 = 0.25;

/// Driver, compiler, devices.
pub(crate) fn judge(facts: &GpuFacts) -> Vec<Finding> {
    let mut findings = vec![presence(facts)];
    if facts.devices.is_empty() {
        return findings;
    }
    findings.push(compiler(facts));
    for gpu in &facts.devices {
        findings.push(memory(gpu));
        findings.extend(link(gpu));
        findings.extend(device_memory_speed(gpu));
    }
    findings.extend(together(facts));
    findings.push(cufile(facts));
    findings
}

fn presence(facts: &GpuFacts) -> Finding {
    let Some(reason) = &facts.no_device else {
        let names: Vec<&str> = facts.devices.iter().map(|gpu| gpu.name.as_str()).collect();
        let driver = facts.driver.value().map_or("unknown", String::as_str);
        return Finding::ok("gpu", format!("{} (driver: {driver})", names.join(", ")));
    };
    let (reason, remedy) = split_hint(reason);
    match facts.on_bus.as_result() {
        Ok(found) if !found.is_empty() => {
            let addresses: Vec<String> = found.iter().map(|gpu| gpu.address.to_string()).collect();
            Finding::broken(
                "gpu",
                format!("{} on the PCI bus cannot be used: {reason}", addresses.join(", ")),
                "queries run on the CPU alone",
                remedy,
            )
        }
        Ok(_) if facts.driver.value().is_some() => Finding::slow(
            "gpu",
            format!("a CUDA driver and no GPU: {reason}"),
            "queries run on the CPU alone",
            remedy,
        ),
        Ok(_) => Finding::ok("gpu", "none on the PCI bus: queries run on the CPU"),
        Err(unknown) => Finding::unknown(
            "gpu",
            format!("{reason}; and whether there is one on the PCI bus is not known: {unknown}"),
        ),
    }
}

fn compiler(facts: &GpuFacts) -> Finding {
    match facts.nvrtc.as_result() {
        Ok(found) => Finding::ok("nvrtc", found),
        Err(reason) => {
            let (reason, remedy) = split_hint(reason);
            Finding::broken(
                "nvrtc",
                reason,
                "without the run-time compiler no query runs on a GPU",
                remedy,
            )
        }
    }
}

fn memory(gpu: &GpuFact) -> Finding {
    let subject = subject(gpu);
    match gpu.memory.as_result() {
        Err(reason) => {
            let (reason, remedy) = split_hint(reason);
            Finding::broken(
                subject,
                format!("it cannot be opened: {reason}"),
                "no query runs on it",
                remedy,
            )
        }
        Ok(memory) => {
            let share = memory.free_bytes as f64 / memory.total_bytes.max(1) as f64;
            let found = format!(
                "{:.1} of {:.1} GB of device memory free",
                memory.free_bytes as f64 / 1e9,
                memory.total_bytes as f64 / 1e9
            );
            if share < FREE_SHARE_MIN {
                Finding::slow(
                    subject,
                    found,
                    "little is left for columns that could stay between queries",
                    "nvidia-smi lists the processes that hold the rest",
                )
            } else {
                Finding::ok(subject, found)
            }
        }
    }
}

/// Width and generation of the links down to the GPU, compared with the measured copies.
fn link(gpu: &GpuFact) -> Vec<Finding> {
    let subject = format!("{}, link", subject(gpu));
    let links = match gpu.links.as_result() {
        Ok(links) if !links.is_empty() => links,
        Ok(_) => return vec![no_link(gpu, subject, "no PCIe link is shown (a virtual machine?)")],
        Err(unknown) => return vec![no_link(gpu, subject, unknown)],
    };
    let (Some(own), Some(narrowest)) =
        (links.last(), links.iter().min_by(|a, b| a.gb_per_s().total_cmp(&b.gb_per_s())))
    else {
        return Vec::new();
    };
    if narrowest.width < own.max_width {
        return vec![too_narrow(subject, narrowest, own)];
    }
    let Some(h2d) = gpu.h2d_gb_per_s() else {
        return vec![unmeasured(gpu, subject, narrowest, own)];
    };
    let text = format!("{}; pinned copies reach {h2d:.1} GB/s", link_text(narrowest));
    if h2d >= LINK_SHARE_MIN * own.max_gb_per_s() {
        return vec![Finding::ok(subject, text)];
    }
    if narrowest.speed_gt_per_s < own.max_speed_gt_per_s {
        return vec![Finding::slow(
            subject,
            format!("{text}, generation {} under load", generation(narrowest.generation())),
            format!(
                "the GPU could use generation {} ({:.0} GB/s)",
                generation(own.max_generation()),
                own.max_gb_per_s()
            ),
            format!(
                "set the slot of {} to its best generation in the firmware, or use another slot or \
                 riser; `lspci -vv -s {}` shows LnkCap and LnkSta of the port above",
                own.address, own.address
            ),
        )];
    }
    vec![Finding::slow(
        subject,
        format!("{text}, {:.0}% of what it carries", 100.0 * h2d / own.gb_per_s()),
        "storage and memory reach the GPU no faster than this",
        "end other users of the GPU and of the processor's memory, and measure again; with several \
         sockets run near it: numactl --cpunodebind=NODE --membind=NODE",
    )]
}

fn too_narrow(subject: String, narrowest: &PciLink, own: &PciLink) -> Finding {
    Finding::slow(
        subject,
        format!(
            "{} lanes at {} where the GPU has {}",
            narrowest.width, narrowest.address, own.max_width
        ),
        format!(
            "it carries {:.1} GB/s at best, the GPU could take {:.1}",
            narrowest.gb_per_s() * own.max_speed_gt_per_s / narrowest.speed_gt_per_s,
            own.max_gb_per_s()
        ),
        format!(
            "reseat the card or use a slot with {} lanes; check bifurcation in the firmware and \
             `lspci -vv -s {}`",
            own.max_width, own.address
        ),
    )
}

fn unmeasured(gpu: &GpuFact, subject: String, narrowest: &PciLink, own: &PciLink) -> Finding {
    let why = gpu.h2d.as_result().err().unwrap_or_default();
    if narrowest.speed_gt_per_s >= own.max_speed_gt_per_s {
        return Finding::ok(subject, format!("{}; not measured: {why}", link_text(narrowest)));
    }
    // An idle GPU lowers the speed of its link, so this alone is no fault.
    Finding::unknown(
        subject,
        format!(
            "{} now, generation {} at best; an idle GPU lowers it, and nothing was copied: {why}",
            link_text(narrowest),
            generation(own.max_generation())
        ),
    )
}

fn no_link(gpu: &GpuFact, subject: String, why: &str) -> Finding {
    let measured = match gpu.h2d.as_result() {
        Ok(speed) => format!("pinned copies reach {:.1} GB/s", speed.gb_per_s),
        Err(reason) => format!("copies were not measured: {reason}"),
    };
    Finding::unknown(subject, format!("width and generation: {why}; {measured}"))
}

fn device_memory_speed(gpu: &GpuFact) -> Option<Finding> {
    let measured = gpu.memory_speed.value()?.gb_per_s;
    let nominal = gpu.nominal_memory_gb_per_s;
    let subject = format!("{}, device memory", subject(gpu));
    if nominal <= 0.0 || measured >= MEMORY_SHARE_MIN * nominal {
        return Some(Finding::ok(subject, format!("{measured:.0} GB/s")));
    }
    Some(Finding::slow(
        subject,
        format!(
            "{measured:.0} GB/s, {:.0}% of its nominal {nominal:.0}",
            100.0 * measured / nominal
        ),
        "queries over resident columns run at the speed of device memory",
        "nvidia-smi -q -d CLOCK,PERFORMANCE tells whether clocks are held down, and whether others \
         use the GPU",
    ))
}

/// The rate of all links together, compared with each alone.
fn together(facts: &GpuFacts) -> Option<Finding> {
    let all = match facts.all_h2d.as_ref()? {
        Known::Value(all) => all,
        Known::Unknown { unknown } => {
            return Some(Finding::unknown("gpus at once", unknown.as_str()));
        }
    };
    let alone: f64 = facts.devices.iter().filter_map(GpuFact::h2d_gb_per_s).sum();
    let found = format!(
        "{:.1} GB/s to {} GPUs together, {alone:.1} one after the other",
        all.total_gb_per_s,
        all.ordinals.len()
    );
    if all.total_gb_per_s >= TOGETHER_SHARE_MIN * alone {
        return Some(Finding::ok("gpus at once", found));
    }
    Some(Finding::slow(
        "gpus at once",
        found,
        "they share a root port, a link between processors, or too few memory channels",
        "nvidia-smi topo -m shows what they share; spread them over root ports, fill all memory \
         channels, and spread pinned memory: numactl --interleave=all",
    ))
}

/// Only its presence: whether a path needs it is judged with the path.
fn cufile(facts: &GpuFacts) -> Finding {
    match facts.cufile.library.as_result() {
        Ok(version) => {
            let mode = match facts.cufile.mode.as_result() {
                Ok(mode) if facts.cufile.proven => format!("{mode} (counted)"),
                Ok(mode) => format!("{mode} (possible; nothing was counted)"),
                Err(reason) => format!("mode unknown: {reason}"),
            };
            Finding::ok("cuFile", format!("{version}, {mode}"))
        }
        Err(reason) => Finding::ok(
            "cuFile",
            format!("not used: {}; bytes reach the GPU through pinned slots", split_hint(reason).0),
        ),
    }
}

fn subject(gpu: &GpuFact) -> String {
    format!("gpu {}", gpu.ordinal)
}

fn link_text(link: &PciLink) -> String {
    format!("PCIe {} x{} ({:.0} GB/s)", generation(link.generation()), link.width, link.gb_per_s())
}

fn generation(found: Option<u32>) -> String {
    found.map_or_else(|| "of unknown generation".to_string(), |number| number.to_string())
}

/// A rendered error's cause (its first line) and its hint.
pub(crate) fn split_hint(text: &str) -> (&str, &str) {
    let (cause, hint) = text.split_once("hint: ").unwrap_or((text, ""));
    (cause.lines().next().unwrap_or_default().trim(), hint.trim())
}

/// A `Known` rate in words.
pub(crate) fn rate_text(rate: &Known<f64>) -> String {
    match rate.as_result() {
        Ok(rate) => format!("{rate:.2} GB/s"),
        Err(reason) => format!("not measured: {reason}"),
    }
}
