# Each target does all its set-up and can run alone.
TARGET := $(or $(CARGO_TARGET_DIR),target)
HEADRACE := $(TARGET)/debug/headrace
RELEASE := $(TARGET)/release/headrace
export PG_CONFIG ?= $(shell command -v pg_config)

.PHONY: demo test test-cluster fuzz lint bench release wheel packages test-packages site install postgres demo-postgres install-postgres test-gpu gpu-bundle clean

demo:
	scripts/setup build
	cargo build --locked --profile demo --package headrace-cli
	$(TARGET)/demo/headrace demo

# What is cheap first: formatting and clippy before any test is built.
test:
	scripts/setup test
	$(MAKE) lint
	scripts/test

# The cluster, which has a build of DataFusion of its own: a quarter of an hour where nothing is built.
test-cluster:
	scripts/setup test
	cargo clippy --locked --package headrace-cluster --all-targets -- -D warnings
	cargo build --locked --package headrace-cli
	scripts/test-cluster $(HEADRACE)

# Broken files and statements, led by coverage: as long as one likes.
fuzz:
	scripts/fuzz all $(or $(SECONDS),600) $(or $(JOBS),1)

lint:
	cargo fmt --all --check
	cargo clippy --locked --all-targets -- -D warnings
	cargo clippy --locked --package headrace-cli --package headrace-fuzz --features headrace-fuzz/libfuzzer --all-targets -- -D warnings
	cargo clippy --locked --package headrace-python -- -D warnings
	cargo clippy --locked --package headrace-server --all-targets -- -D warnings
	PGRX_PG_CONFIG_PATH=$(PG_CONFIG) cargo clippy --locked --package headrace-postgres -- -D warnings

release:
	scripts/setup build
	cargo build --locked --release --package headrace-cli
	scripts/check-paths $(RELEASE)

# The release build on PATH, with completions and pages of the manual: PREFIX, or /usr/local for root and ~/.local for others.
install: release
	scripts/install $(RELEASE) $(PREFIX)

# The Python package as a wheel, in target/wheels.
wheel:
	scripts/setup test
	scripts/build-wheel release

# What a release consists of, in target/packages: wheel, archives, packages of Debian, for the extension too; then what they
# do in systems that have nothing else.
packages:
	scripts/setup packages
	scripts/packages

test-packages:
	tests/packages/run $(TARGET)/packages

# The documentation as a site, in target/site.
site:
	scripts/setup test
	scripts/site

# The extension's files and their archive, for the server whose pg_config is PG_CONFIG.
postgres:
	scripts/setup postgres
	scripts/build-postgres release

# SSB in a private server, with the extension and without it.
demo-postgres:
	scripts/setup postgres
	cargo build --locked --package headrace-cli
	scripts/build-postgres dev
	scripts/demo-postgres $(HEADRACE) $(TARGET)/postgres-dev

install-postgres: postgres
	scripts/install-postgres $(TARGET)/postgres-release

bench: release
	scripts/setup test
	bench/vs-duckdb --suite ssb --headrace $(RELEASE)
	bench/vs-duckdb --suite tpch --scales 1 --headrace $(RELEASE)
	bench/vs-duckdb --suite tpcds --scales 1 --headrace $(RELEASE)
	bench/vs-duckdb --suite clickbench --scales 1,10 --headrace $(RELEASE)

gpu-bundle: release
	scripts/gpu-bundle

test-gpu:
	scripts/test-gpu

clean:
	cargo clean
