//! `--version`: this binary and its environment.

use std::fmt::Write;

use headrace_gpu::GpuProbe;

/// The lines of `--version`.
pub fn text() -> String {
    let mut out = format!("headrace {}\n", env!("CARGO_PKG_VERSION"));
    describe(&mut out, &headrace_gpu::probe());
    out
}

fn describe(out: &mut String, probe: &GpuProbe) {
    let driver = match &probe.driver_version {
        Ok((major, minor)) => format!("supports CUDA {major}.{minor}"),
        Err(reason) => first_line(reason),
    };
    let nvrtc = match &probe.nvrtc {
        Ok(found) => format!("{}.{} ({})", found.major, found.minor, found.path.display()),
        Err(reason) => first_line(reason),
    };
    line(out, "driver", &driver);
    line(out, "nvrtc", &nvrtc);
    for device in &probe.devices {
        let (major, minor) = device.compute_capability;
        let gb = device.total_memory_bytes as f64 / 1e9;
        let text = format!("{} ({gb:.0} GB, compute capability {major}.{minor})", device.name);
        line(out, &format!("gpu {}", device.ordinal), &text);
    }
    if probe.devices.is_empty() {
        let reason = probe.reason.as_deref().map(first_line).unwrap_or_default();
        let _ = writeln!(out, "{}", format!("GPU: none ({reason})").trim_end_matches(" ()"));
    } else if let Some(reason) = &probe.reason {
        line(out, "gpu", &first_line(reason));
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_string()
}

fn line(out: &mut String, name: &str, value: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{name:<8} {value}");
}
