//! Compilation to cubins and their cache, against the real NVRTC. No GPU is needed.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::path::Path;
use std::thread;

use headrace_gpu::{CacheOutcome, Compiler, CubinCache, GpuError, Source, probe};

const ARCH: &str = "sm_90";

const HEADER: (&str, &str) = (
    "wide.cuh",
    "#pragma once\n\
     // Without an annotation: a device function by the fixed options.\n\
     inline __int128 widen(long long value) { return (__int128)value * value; }\n",
);

const KERNEL: Source<'static> = Source {
    name: "squares.cu",
    text: "#include \"wide.cuh\"\n\
           extern \"C\" __global__ void squares(const long long* in, __int128* out, int n) {\n\
             int i = blockIdx.x * blockDim.x + threadIdx.x;\n\
             if constexpr (sizeof(__int128) == 16) { if (i < n) out[i] = widen(in[i]); }\n\
           }\n",
    headers: &[HEADER],
};

fn compiler() -> Compiler {
    Compiler::load(None).expect("NVRTC is needed: set HEADRACE_NVRTC to its file or folder")
}

#[test]
#[ignore = "needs NVRTC: set HEADRACE_NVRTC to its file or folder"]
fn nvrtc_compiles_int128_and_memory_headers_to_a_cubin() {
    let compiler = compiler();
    assert!(compiler.version() >= (12, 0), "{compiler:?}");
    assert!(compiler.path().exists(), "{compiler:?}");
    let cubin = compiler.compile(&KERNEL, ARCH, &[]).unwrap();
    assert_eq!(&cubin.image[..4], b"\x7fELF");
    let names = String::from_utf8_lossy(&cubin.image).into_owned();
    assert!(names.contains("squares"), "the kernel's symbol is plain");
    assert_eq!(cubin.arch, ARCH);
    assert_eq!(cubin.warnings, "");
}

#[test]
#[ignore = "needs NVRTC: set HEADRACE_NVRTC to its file or folder"]
fn nvrtc_compiles_the_kernels_of_the_gpu_tests() {
    for arch in ["sm_80", "sm_90"] {
        let cubin = compiler().compile(&support::KERNELS, arch, &[]).unwrap();
        assert_eq!(cubin.warnings, "");
    }
}

#[test]
#[ignore = "needs NVRTC: set HEADRACE_NVRTC to its file or folder"]
fn nvrtc_probe_names_the_library_in_use() {
    let compiler = compiler();
    let found = probe().nvrtc.unwrap();
    assert_eq!((found.major, found.minor), compiler.version());
    assert_eq!(found.path, compiler.path());
}

#[test]
#[ignore = "needs NVRTC: set HEADRACE_NVRTC to its file or folder"]
fn nvrtc_is_opened_by_file_and_by_folder() {
    let file = compiler().path().to_path_buf();
    let folder = file.parent().unwrap();
    assert!(folder.is_absolute(), "{file:?}");
    for path in [file.as_path(), folder] {
        let compiler = Compiler::load(Some(path)).unwrap();
        assert!(compiler.compile(&KERNEL, ARCH, &[]).is_ok());
    }
}

#[test]
#[ignore = "needs NVRTC: set HEADRACE_NVRTC to its file or folder"]
fn nvrtc_errors_show_the_source_line() {
    let source = Source {
        name: "bad.cu",
        text: "extern \"C\" __global__ void bad(int* out) {\n  *out = undeclared;\n}\n",
        headers: &[],
    };
    let error = compiler().compile(&source, ARCH, &[]).unwrap_err();
    assert!(matches!(error, GpuError::Compile { .. }), "{error}");
    let shown = error.to_string();
    assert!(shown.contains("`bad.cu` does not compile for sm_90"), "{shown}");
    assert!(shown.contains("\"undeclared\" is undefined"), "{shown}");
    assert!(shown.contains("--> bad.cu:2"), "{shown}");
    assert!(shown.contains("\n>     2 |   *out = undeclared;"), "{shown}");
}

#[test]
#[ignore = "needs NVRTC: set HEADRACE_NVRTC to its file or folder"]
fn nvrtc_errors_show_the_line_of_a_header() {
    let source = Source {
        name: "uses.cu",
        text: "#include \"broken.cuh\"\nextern \"C\" __global__ void k() {}\n",
        headers: &[("broken.cuh", "// fine\nint f() { return nothing; }\n")],
    };
    let shown = compiler().compile(&source, ARCH, &[]).unwrap_err().to_string();
    assert!(shown.contains("--> broken.cuh:2"), "{shown}");
    assert!(shown.contains("\n>     2 | int f() { return nothing; }"), "{shown}");
}

#[test]
#[ignore = "needs NVRTC: set HEADRACE_NVRTC to its file or folder"]
fn nvrtc_a_missing_header_and_a_wrong_option_are_errors() {
    let missing = Source { headers: &[], ..KERNEL };
    let shown = compiler().compile(&missing, ARCH, &[]).unwrap_err().to_string();
    assert!(shown.contains("wide.cuh"), "{shown}");

    let error = compiler().compile(&KERNEL, ARCH, &["--no-such-option"]).unwrap_err();
    assert!(matches!(error, GpuError::Nvrtc { .. }), "{error}");
    assert!(error.to_string().contains("no-such-option"), "{error}");

    let error = compiler().compile(&KERNEL, "sm_1", &[]).unwrap_err();
    assert!(error.to_string().contains("sm_1"), "{error}");

    let nul = Source { text: "a\0b", ..KERNEL };
    let error = compiler().compile(&nul, ARCH, &[]).unwrap_err();
    assert!(matches!(error, GpuError::InvalidArgument { .. }), "{error}");
}

#[test]
#[ignore = "needs NVRTC: set HEADRACE_NVRTC to its file or folder"]
fn nvrtc_warnings_are_kept_and_come_back_from_the_cache() {
    let source = Source {
        name: "warned.cu",
        text: "extern \"C\" __global__ void k() {\n  int unused_here;\n}\n",
        headers: &[],
    };
    let folder = tempfile::tempdir().unwrap();
    let cache = CubinCache::open(folder.path());
    let compiler = compiler();
    let (fresh, _) = cache.compile(&compiler, &source, ARCH, &[]).unwrap();
    assert!(fresh.warnings.contains("unused_here"), "{}", fresh.warnings);
    assert!(fresh.warnings.contains("--> warned.cu:2"), "{}", fresh.warnings);
    let (again, outcome) = cache.compile(&compiler, &source, ARCH, &[]).unwrap();
    assert_eq!(outcome, CacheOutcome::Hit);
    assert_eq!(again, fresh);
}

#[test]
#[ignore = "needs NVRTC: set HEADRACE_NVRTC to its file or folder"]
fn nvrtc_cache_hits_after_a_miss_and_mends_a_damaged_entry() {
    let folder = tempfile::tempdir().unwrap();
    let compiler = compiler();
    let cache = CubinCache::open(folder.path());
    let (fresh, outcome) = cache.compile(&compiler, &KERNEL, ARCH, &[]).unwrap();
    assert!(matches!(outcome, CacheOutcome::Compiled { compile_ms } if compile_ms > 0.0));

    // Another cache over the same folder is what another process has.
    let second = CubinCache::open(folder.path());
    let (kept, outcome) = second.compile(&compiler, &KERNEL, ARCH, &[]).unwrap();
    assert_eq!((outcome, &kept), (CacheOutcome::Hit, &fresh));
    assert_eq!(second.stats().compile_ms, 0.0);

    let entry = only_entry(second.folder().unwrap());
    fs::write(&entry, b"HRCUBIN\x01 and nothing that fits").unwrap();
    let (mended, outcome) = second.compile(&compiler, &KERNEL, ARCH, &[]).unwrap();
    assert!(matches!(outcome, CacheOutcome::Compiled { .. }));
    assert_eq!(mended, fresh);
    let (_, outcome) = second.compile(&compiler, &KERNEL, ARCH, &[]).unwrap();
    assert_eq!(outcome, CacheOutcome::Hit);

    let stats = second.stats();
    assert_eq!((stats.hits, stats.misses, stats.damaged), (2, 1, 1));
    assert!(stats.compile_ms > 0.0);

    let (_, outcome) = second.compile(&compiler, &KERNEL, ARCH, &["-lineinfo"]).unwrap();
    assert!(matches!(outcome, CacheOutcome::Compiled { .. }), "other options");
}

#[test]
#[ignore = "needs NVRTC: set HEADRACE_NVRTC to its file or folder"]
fn nvrtc_compiles_without_a_usable_cache_folder() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, b"").unwrap();
    let cache = CubinCache::open(&file);
    let (cubin, _) = cache.compile(&compiler(), &KERNEL, ARCH, &[]).unwrap();
    assert!(!cubin.image.is_empty());
    assert_eq!(cache.stats().write_failures, 1);
}

#[test]
#[ignore = "needs NVRTC: set HEADRACE_NVRTC to its file or folder"]
fn nvrtc_compiles_in_several_threads_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let cache = CubinCache::open(folder.path());
    let compiler = compiler();
    let expected = compiler.compile(&KERNEL, ARCH, &[]).unwrap();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| cache.compile(&compiler, &KERNEL, ARCH, &[]).unwrap().0))
            .collect();
        for worker in workers {
            assert_eq!(worker.join().unwrap(), expected);
        }
    });
    let stats = cache.stats();
    assert_eq!(stats.hits + stats.misses, 4);
    only_entry(cache.folder().unwrap());
}

fn only_entry(folder: &Path) -> std::path::PathBuf {
    let mut entries: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
    entries.remove(0)
}
