# Each target does all its set-up and can run alone.
TARGET := $(or $(CARGO_TARGET_DIR),target)
HEADRACE := $(TARGET)/debug/headrace
RELEASE := $(TARGET)/release/headrace

.PHONY: demo test lint bench release postgres install-postgres test-gpu gpu-bundle clean

demo:
	scripts/setup build
	cargo build --locked --package headrace-cli
	$(HEADRACE) demo

# What is cheap first: formatting and clippy before any test is built.
test:
	scripts/setup test
	$(MAKE) lint
	scripts/test

lint:
	cargo fmt --all --check
	cargo clippy --locked --all-targets -- -D warnings

release:
	scripts/setup build
	cargo build --locked --release --package headrace-cli

# The extension's files, for the server whose pg_config is PG_CONFIG, in a folder that the last line names.
postgres:
	scripts/setup postgres
	scripts/build-postgres release

install-postgres: postgres
	scripts/install-postgres $(TARGET)/postgres-release

bench: release
	scripts/setup test
	bench/ssb-vs-duckdb --headrace $(RELEASE)

gpu-bundle: release
	scripts/gpu-bundle

test-gpu:
	scripts/test-gpu

clean:
	cargo clean
