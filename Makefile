# Each target does all its set-up and can run alone.
TARGET := $(or $(CARGO_TARGET_DIR),target)
HEADRACE := $(TARGET)/debug/headrace
RELEASE := $(TARGET)/release/headrace

.PHONY: demo test lint bench release test-gpu gpu-bundle clean

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
	cargo clippy --locked --workspace --all-targets -- -D warnings

release:
	scripts/setup build
	cargo build --locked --release --package headrace-cli

bench: release
	scripts/setup test
	bench/ssb-vs-duckdb --headrace $(RELEASE)

gpu-bundle: release
	scripts/gpu-bundle

test-gpu:
	scripts/test-gpu

clean:
	cargo clean
