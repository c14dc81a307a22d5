//! How much memory this process has taken at most.

/// Peak resident set size in bytes, from `/proc/self/status`; `None` where the kernel does not
/// tell. File pages that are mapped count while they are mapped.
pub fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_process_has_a_peak() {
        assert!(super::peak_rss_bytes().is_some_and(|bytes| bytes > 1_000_000));
    }
}
