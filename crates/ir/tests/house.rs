//! The shape of the house: which crate may depend on which, checked from the manifests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// For each crate, the crates of this workspace that it may name. Arrows point down only.
const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("ir", &[]),
    ("io", &["ir"]),
    ("gpu", &["ir"]),
    ("spill", &["io"]),
    ("format", &["ir", "io"]),
    ("flow", &["ir", "io", "gpu"]),
    ("ooc", &["ir", "io", "spill", "gpu", "flow", "format"]),
    ("columns", &["ir", "io"]),
    ("pipeline", &["ir", "io", "spill", "flow", "columns"]),
    ("cuda", &["ir", "io", "gpu", "flow", "columns", "pipeline"]),
    ("ceilings", &["ir", "io", "flow"]),
    ("bench", &["ir", "io", "gpu", "flow", "ceilings", "ooc"]),
    ("doctor", &["io", "gpu", "flow", "ceilings", "bench"]),
    ("suites", &["ir", "io", "format"]),
    ("pg", &["format", "ceilings", "doctor"]),
    (
        "runner",
        &[
            "ir", "io", "spill", "gpu", "format", "flow", "ooc", "ceilings", "columns", "pipeline",
            "cuda",
        ],
    ),
    (
        "engine",
        &[
            "ir", "io", "gpu", "format", "flow", "ooc", "ceilings", "columns", "pipeline",
            "runner", "service",
        ],
    ),
    (
        "cli",
        &[
            "ir", "io", "gpu", "format", "flow", "ceilings", "bench", "doctor", "pipeline",
            "runner", "engine", "suites", "pg", "service", "ooc",
        ],
    ),
    ("python", &["ir", "io", "gpu", "format", "flow", "columns", "service", "engine", "cli"]),
    ("server", &["gpu", "engine", "cli"]),
    ("cluster", &["ir", "io", "format", "flow", "runner", "engine", "cli"]),
    ("service", &["ir", "gpu", "format", "flow", "ceilings", "columns", "pipeline", "runner"]),
    ("postgres", &["ir", "io", "format", "flow", "columns", "runner", "service"]),
    ("fuzz", &["format", "engine"]),
];

/// External crates that only some may name.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("datafusion", &["engine", "cli", "python", "server", "cluster", "fuzz"]),
    ("tokio", &["engine", "pg", "cli", "python", "server", "cluster", "fuzz"]),
    ("tokio-postgres", &["pg"]),
    // The engine's manifest asks for its features, and its sources do not name it.
    ("rustls", &["engine", "pg", "server", "cluster"]),
    ("cudarc", &["gpu"]),
    ("io-uring", &["io"]),
    ("arrow-ipc", &["format", "spill", "service", "cli"]),
    ("object_store", &["engine"]),
    ("parquet", &["format"]),
    ("pgrx", &["postgres"]),
    ("pyo3", &["python"]),
    ("axum", &["server"]),
    ("arrow-flight", &["server", "cluster"]),
    ("ballista-core", &["cluster"]),
    ("ballista-scheduler", &["cluster"]),
    ("ballista-executor", &["cluster"]),
];

fn crates_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Names of the `[dependencies]` of a manifest; `[dev-dependencies]` may point anywhere.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut inside = false;
    let mut names = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line == "[dependencies]";
        } else if inside && !line.is_empty() && !line.starts_with('#') {
            let name = line.split(['=', '.', ' ']).next().unwrap_or_default();
            names.push(name.to_string());
        }
    }
    names
}

fn workspace() -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(crates_folder()).expect("crates folder") {
        let path = entry.expect("entry").path();
        if let Ok(manifest) = fs::read_to_string(path.join("Cargo.toml")) {
            let name = path.file_name().expect("name").to_string_lossy().into_owned();
            found.insert(name, dependencies(&manifest));
        }
    }
    found
}

#[test]
fn arrows_point_down_only() {
    let allowed: BTreeMap<_, _> = MAY_DEPEND_ON.iter().copied().collect();
    for (name, dependencies) in workspace() {
        let may = allowed.get(name.as_str()).unwrap_or_else(|| {
            panic!("crate {name} has no place in the house: add it to MAY_DEPEND_ON and ARCHITECTURE.md")
        });
        for dependency in dependencies {
            if let Some(inner) = dependency.strip_prefix("headrace-") {
                assert!(may.contains(&inner), "{name} must not depend on {inner}");
            }
        }
    }
}

#[test]
fn every_crate_of_the_house_exists() {
    let found = workspace();
    for (name, _) in MAY_DEPEND_ON {
        assert!(found.contains_key(*name), "crate {name} is missing");
    }
}

#[test]
fn heavy_libraries_stay_where_they_belong() {
    for (name, dependencies) in workspace() {
        for (library, may) in ONLY_IN {
            let named = dependencies.iter().any(|d| d == library);
            assert!(!named || may.contains(&name.as_str()), "{name} must not name {library}");
        }
    }
}

#[test]
fn every_crate_says_what_it_is() {
    for name in workspace().keys() {
        let folder = crates_folder().join(name).join("src");
        let root = ["lib.rs", "main.rs"].iter().map(|f| folder.join(f)).find(|p| p.exists());
        let text = fs::read_to_string(root.expect("a crate root")).expect("readable");
        let documented = text.lines().take_while(|l| l.starts_with("//!")).count();
        assert!(documented >= 5, "crate {name} opens with {documented} lines of documentation");
    }
}
