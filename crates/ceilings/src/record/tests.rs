#![allow(clippy::unwrap_used)]
use headrace_flow::Bottleneck;

use super::*;

const NOW: u64 = 1_800_000_000;
const DAY_S: u64 = 24 * 3600;

fn store() -> StoreKey {
    StoreKey::of_mount("/dev/vda", "ext4")
}

fn read(access: &str, value: f64) -> Measurement {
    let measure = Measure::StorageRead { store: store(), access: access.to_string(), threads: 4 };
    Measurement { measure, value, how: "a test".to_string(), bytes: 1 << 30 }
}

fn of(measure: Measure, value: f64) -> Measurement {
    Measurement { measure, value, how: "a test".to_string(), bytes: 1 }
}

struct TemporaryPlace {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

fn place() -> TemporaryPlace {
    let folder = tempfile::tempdir().unwrap();
    TemporaryPlace { path: folder.path().join("deep/er/ceilings.json"), _folder: folder }
}

#[test]
fn what_is_recorded_is_found_again_by_others() {
    let place = place();
    let mut one = Ceilings::load_from(&place.path).unwrap();
    assert!(one.is_empty());
    let recorded = one
        .record(&[
            read("uring", 2.48),
            read("pread", 2.41),
            of(Measure::HostToDevice { gpu: "0000:c1:00.0".into() }, 55.5),
            of(
                Measure::RandomRead {
                    store: store(),
                    access: "uring".into(),
                    threads: 64,
                    block_bytes: 4096,
                },
                250e3,
            ),
        ])
        .unwrap();
    assert_eq!(recorded, Recorded::default());
    let other = Ceilings::load_from(&place.path).unwrap();
    assert_eq!(other.all(), one.all());
    let found = other.for_store(&store());
    assert_eq!(found.read.as_ref().unwrap().value, 2.48);
    assert_eq!(found.random_read.unwrap().unit, "IOPS");
    assert_eq!(found.write, None);
    let Some(Ceiling { measure: Measure::StorageRead { access, .. }, .. }) = found.read else {
        panic!("not a read");
    };
    assert_eq!(access, "uring");
    assert_eq!(other.for_store(&StoreKey::of_mount("other", "xfs")), StoreCeilings::default());
}

#[test]
fn a_ceiling_is_the_best_of_the_recent_samples_and_sinks() {
    let place = place();
    let mut ceilings = Ceilings::load_from(&place.path).unwrap();
    let measure = read("uring", 1.0).measure;
    ceilings.record_at(&[read("uring", 5.0)], NOW).unwrap();
    // One disturbed run does not lower it.
    for n in 1..SAMPLES_MAX as u64 {
        ceilings.record_at(&[read("uring", 3.0)], NOW + n).unwrap();
        let ceiling = ceilings.get_at(&measure, NOW + n).unwrap();
        assert_eq!((ceiling.value, ceiling.stale, ceiling.age_s), (5.0, false, n));
    }
    // As many as are kept do.
    ceilings.record_at(&[read("uring", 3.1)], NOW + 100).unwrap();
    let ceiling = ceilings.get_at(&measure, NOW + 100).unwrap();
    assert_eq!((ceiling.value, ceiling.samples), (3.1, SAMPLES_MAX));
}

#[test]
fn age_lowers_a_ceiling_too() {
    let place = place();
    let mut ceilings = Ceilings::load_from(&place.path).unwrap();
    let measure = read("uring", 1.0).measure;
    ceilings.record_at(&[read("uring", 5.0)], NOW).unwrap();
    let late = NOW + FRESH_S + 1;
    let stale = ceilings.get_at(&measure, late).unwrap();
    assert_eq!((stale.value, stale.stale), (5.0, true));
    ceilings.record_at(&[read("uring", 2.0)], late).unwrap();
    let fresh = ceilings.get_at(&measure, late).unwrap();
    assert_eq!((fresh.value, fresh.stale), (2.0, false));
    // When all are old, the newest speaks.
    let later = late + FRESH_S + 1;
    assert_eq!(ceilings.get_at(&measure, later).unwrap().value, 2.0);
}

#[test]
fn no_rate_is_recorded_that_is_none() {
    let place = place();
    let mut ceilings = Ceilings::load_from(&place.path).unwrap();
    for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = ceilings.record(&[read("uring", 1.0), read("uring", value)]).unwrap_err();
        assert!(matches!(error, CeilingsError::Value { .. }), "{error}");
    }
    assert!(!place.path.exists());
}

#[test]
fn a_damaged_record_is_named_moved_aside_and_begun_anew() {
    let place = place();
    Ceilings::load_from(&place.path).unwrap().record(&[read("uring", 2.0)]).unwrap();
    let whole = std::fs::read(&place.path).unwrap();
    let wrong_value = String::from_utf8(whole.clone()).unwrap().replace("2.0", "-2.0");
    let flipped = String::from_utf8(whole.clone()).unwrap().replace("storage_read", "storage_raed");
    for damaged in
        [&whole[..whole.len() / 2], b"", &[0; 4096], wrong_value.as_bytes(), flipped.as_bytes()]
    {
        std::fs::write(&place.path, damaged).unwrap();
        let error = Ceilings::load_from(&place.path).unwrap_err();
        assert!(matches!(error, CeilingsError::Damaged { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("ceilings.json") && text.contains("hint:"), "{text}");

        let mut fresh = Ceilings::empty_at(&place.path);
        let aside = fresh.record(&[read("pread", 1.0)]).unwrap().moved_aside.unwrap();
        assert_eq!(std::fs::read(&aside).unwrap(), damaged);
        assert_eq!(Ceilings::load_from(&place.path).unwrap().all().len(), 1);
    }
}

#[test]
fn a_cut_record_is_damaged_at_every_length() {
    let place = place();
    Ceilings::load_from(&place.path).unwrap().record(&[read("uring", 2.0)]).unwrap();
    let whole = std::fs::read(&place.path).unwrap();
    // All but the last line break are needed.
    for bytes in 0..whole.len() - 1 {
        std::fs::write(&place.path, &whole[..bytes]).unwrap();
        let error = Ceilings::load_from(&place.path).unwrap_err();
        assert!(matches!(error, CeilingsError::Damaged { .. }), "{bytes}: {error}");
    }
}

#[test]
fn files_of_others_are_left_alone() {
    let place = place();
    std::fs::create_dir_all(place.path.parent().unwrap()).unwrap();
    let newer = br#"{"format":"headrace ceilings","version":7,"machines":{},"more":1}"#;
    let other = br#"{"format":"something else"}"#;
    for (text, is_newer) in [(&newer[..], true), (other, false), (b"root:x:0:0:", false)] {
        std::fs::write(&place.path, text).unwrap();
        let loaded = Ceilings::load_from(&place.path).unwrap_err();
        let recorded = Ceilings::empty_at(&place.path).record(&[read("uring", 1.0)]).unwrap_err();
        for error in [loaded, recorded] {
            assert_eq!(matches!(error, CeilingsError::Newer { version: 7, .. }), is_newer);
            assert_eq!(matches!(error, CeilingsError::Foreign { .. }), !is_newer, "{error}");
        }
        assert_eq!(std::fs::read(&place.path).unwrap(), text);
    }
}

#[test]
fn what_the_filesystem_refuses_is_an_error_with_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, b"").unwrap();
    // A file where a folder should be, a folder where the file should be.
    for path in [file.join("ceilings.json"), folder.path().to_path_buf()] {
        let error = Ceilings::empty_at(&path).record(&[read("uring", 1.0)]).unwrap_err();
        assert!(matches!(error, CeilingsError::Io { .. }), "{error}");
        assert!(error.to_string().contains(&*folder.path().display().to_string()), "{error}");
    }
}

#[test]
fn writers_at_the_same_time_lose_nothing() {
    let place = place();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let path = &place.path;
            scope.spawn(move || {
                let mut ceilings = Ceilings::load_from(path).unwrap();
                for n in 0..5 {
                    ceilings.record(&[read(&format!("{thread}.{n}"), 1.0)]).unwrap();
                }
            });
        }
    });
    assert_eq!(Ceilings::load_from(&place.path).unwrap().all().len(), 20);
}

#[test]
fn machines_that_share_a_file_do_not_share_ceilings() {
    let place = place();
    let load = |machine: &str| Ceilings::load_machine(place.path.clone(), machine.into()).unwrap();
    load("a").record(&[read("uring", 1.0)]).unwrap();
    load("b").record(&[read("uring", 9.0)]).unwrap();
    assert_eq!(load("a").for_store(&store()).read.unwrap().value, 1.0);
    assert_eq!(load("b").for_store(&store()).read.unwrap().value, 9.0);
    assert!(load("c").is_empty());
}

#[test]
fn the_record_is_bounded() {
    let mut entries = Entries::new();
    for threads in 0..MEASURES_MAX as u32 + 3 {
        add(&mut entries, &of(Measure::HostCopy { threads }, 1.0), NOW + u64::from(threads));
    }
    forget_oldest(&mut entries);
    assert_eq!(entries.len(), MEASURES_MAX);
    assert!(!entries.contains_key(&Measure::HostCopy { threads: 2 }));
    assert!(entries.contains_key(&Measure::HostCopy { threads: 3 }));
}

#[test]
fn a_bottleneck_reads_beside_its_ceiling() {
    let path = place();
    let mut ceilings = Ceilings::load_from(&path.path).unwrap();
    let gpu = "0000:c1:00.0".to_string();
    ceilings
        .record(&[
            read("uring", 2.48),
            of(Measure::DeviceMemory { gpu: gpu.clone() }, 4240.0),
            of(Measure::AllHostToDevice { gpus: 2 }, 105.0),
        ])
        .unwrap();
    let place = Place { store: Some(store()), gpus: vec![gpu.clone()] };
    let bottleneck = |name, gb_per_s| Bottleneck {
        stage: headrace_flow::Stage::Read,
        name,
        busy_share: 0.99,
        gb_per_s,
    };
    let text = |name, gb_per_s| ceilings.describe_bottleneck(&bottleneck(name, gb_per_s), &place);
    assert_eq!(
        text("storage-bound", 2.41),
        "storage-bound: 2.41 GB/s, 97% of the 2.48 GB/s this file can deliver"
    );
    assert!(text("storage-bound", 2.98).ends_with("(the ceiling was measured too low)"));
    assert!(text("kernel-bound", 8480.0).contains("200% of the 4240.00 GB/s"));
    assert!(text("kernel-bound", 8480.0).ends_with("(not every byte had to be read)"));
    // Without a ceiling the race speaks for itself.
    assert_eq!(text("link-bound", 50.0), "link-bound: 50.00 GB/s, busy 99% of the time");
    let both = Place { gpus: vec![gpu, "0000:c2:00.0".into()], ..place };
    let link = ceilings.of_bottleneck("link-bound", &both).unwrap();
    assert_eq!(
        share_of_ceiling(84.0, &link),
        "80% of the 105.00 GB/s these links can carry together"
    );
    let old = Ceiling { stale: true, age_s: 40 * DAY_S, ..link };
    assert!(share_of_ceiling(84.0, &old).ends_with("(measured 40 days ago: measure again)"));
}
