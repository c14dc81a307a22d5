//! The machine and the limits of the process.

use super::*;

fn refusal(call: &'static str, errno: i32, remedy: &str) -> UringRefusal {
    UringRefusal {
        call,
        errno: Some(errno),
        text: std::io::Error::from_raw_os_error(errno).to_string(),
        remedy: remedy.to_string(),
    }
}

#[test]
fn a_filter_that_forbids_io_uring() {
    let mut machine = machine();
    machine.seccomp = Known::Value(Seccomp {
        mode: SeccompMode::Filter,
        filters: Some(1),
        no_new_privs: Some(true),
    });
    let refused = refusal("io_uring_setup", libc::EPERM, "allow io_uring_setup in the profile");
    machine.uring =
        UringProbe { setup: Err(refused), enter: None, register: None, ..machine.uring };
    let report = report(machine, no_gpu(), vec![good_path()]);
    let found = one(&report, Level::Slow, "io_uring");
    assert!(found.found.contains("Operation not permitted"), "{found:?}");
    assert!(found.remedy.contains("profile"), "{found:?}");
    one(&report, Level::Ok, "1 filter(s)");
    assert_eq!(report.exit_code, 1);
}

#[test]
fn a_ring_that_cannot_be_entered_is_no_ring() {
    let mut machine = machine();
    let refused = refusal("io_uring_enter", libc::EACCES, "see the audit log");
    machine.uring = UringProbe { enter: Some(Err(refused)), ..machine.uring };
    one(&report(machine, no_gpu(), Vec::new()), Level::Slow, "io_uring_enter");
}

#[test]
fn little_memory_may_be_locked() {
    let mut machine = machine();
    machine.limits.memlock_bytes = Ok(Limit::At(64 << 10));
    let refused = refusal("io_uring_register", libc::ENOMEM, "ulimit -l unlimited");
    machine.uring = UringProbe { register: Some(Err(refused)), ..machine.uring };
    let report = report(machine, no_gpu(), Vec::new());
    let found = one(&report, Level::Slow, "the limit is 64 KiB");
    assert!(found.remedy.contains("ulimit -l"));
    assert_eq!(report.exit_code, 1);
}

#[test]
fn a_low_limit_that_was_not_met_is_no_fault() {
    let mut machine = machine();
    machine.limits.memlock_bytes = Ok(Limit::At(64 << 10));
    machine.limits.may_lock_any = Ok(true);
    only_ok(&report(machine, no_gpu(), Vec::new()));
}

#[test]
fn limits_of_the_control_group() {
    let mut machine = machine();
    machine.limits.cgroup = Ok(Cgroup {
        version: 2,
        path: "/pod".to_string(),
        memory_max_bytes: Limit::At(512 << 20),
        memory_current_bytes: None,
        io_max: vec!["259:0 rbps=104857600".to_string(), "8:0 rbps=1".to_string()],
        cpu_quota_cores: Some(2.0),
    });
    let report = report(machine, no_gpu(), vec![good_path()]);
    one(&report, Level::Slow, "at most 512 MiB");
    assert!(one(&report, Level::Slow, "2.0 cores").remedy.contains("--threads 2"));
    // Only the device below the path counts.
    one(&report, Level::Slow, "throttled: 259:0 rbps=104857600");
    assert_eq!(report.counts.slow, 3);
}

#[test]
fn unknown_facts_are_neither_good_nor_bad() {
    let mut machine = machine();
    machine.limits.cgroup = unknown();
    machine.limits.open_files = unknown();
    machine.huge_pages.thp = unknown();
    machine.numa = Known::unknown("/sys/devices/system/node: no such file");
    let report = report(machine, no_gpu(), Vec::new());
    assert_eq!((report.counts.unknown, report.exit_code), (4, 0));
    assert!(report.summary.contains("4 could not be found out"));
}

#[test]
fn huge_pages_that_are_off() {
    let mut machine = machine();
    machine.huge_pages.thp = Ok("never".to_string());
    assert!(
        one(&report(machine, no_gpu(), Vec::new()), Level::Slow, "huge pages")
            .remedy
            .contains("echo madvise")
    );
}

#[test]
fn translated_addresses_matter_to_gpudirect_only() {
    let with = |nvidia_fs: Option<String>| {
        let mut machine = machine();
        machine.iommu.units = vec!["dmar0".to_string()];
        machine.iommu.groups_by_kind = BTreeMap::from([("DMA-FQ".to_string(), 40)]);
        machine.kernel.nvfs = Ok(NvfsSymbols { modules: Vec::new(), nvidia_fs });
        report(machine, one_gpu(h200()), Vec::new())
    };
    only_ok(&with(None));
    one(&with(Some("2.25".to_string())), Level::Slow, "addresses are translated");
}
