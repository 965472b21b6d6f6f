# `make` lists the verbs. Set-up is a chain of stamps: each step runs when what it is made from has changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
PIP := $(BIN)/python -m pip --disable-pip-version-check
CONSTRAINTS := -c constraints.txt
CLIENTS := $(VENV)/clients
FRAMEWORKS := $(VENV)/frameworks
RAY := $(VENV)/ray
VULKAN := $(VENV)/vulkan
TORCHFT := $(VENV)/torchft
# Of the extension: `wheel` is what users install, and what tests and benchmarks run on. Where there is none yet, the demo has
# `release`, without LTO: a minute less of compiling.
PROFILES := wheel release
DEMO_PROFILE := $(if $(wildcard $(STAMPS)/extension-wheel),wheel,release)
RUST := $(shell find crates -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock
export CARGO_TERM_COLOR ?= auto
# Each rank of each test would compile Hocket anew, 0.4 s of a core.
unexport PYTHONDONTWRITEBYTECODE

WORKERS ?= 3
RUST_LIMIT_S ?= 1800
RUNNER := CARGO_TARGET_$(shell rustc -vV 2> /dev/null | sed -n 's/^host: //p' | tr a-z- A-Z_)_RUNNER=$(abspath scripts/each-rust-test)
CARGO_TEST := $(RUNNER) timeout $(RUST_LIMIT_S) cargo test --profile bench --lib --bins --tests
DOC_TEST := timeout $(RUST_LIMIT_S) cargo test --profile bench --doc -p hocket-kernels
LOOM := RUSTFLAGS="--cfg loom" timeout $(RUST_LIMIT_S) cargo test --release --target-dir target/loom -p hocket-sync --lib loom
PYTEST := $(BIN)/python -m pytest
PARALLEL := $(PYTEST) -n $(WORKERS) --dist loadscope --durations=20 --durations-min=3
ALL_TESTS := --ignore=tests/torch_suite --ignore=tests/clients --ignore=tests/frameworks --ignore=tests/ray --ignore=tests/vulkan tests
# Markers of tests that follow `make test` in CI, a verb each. Only files that have the marker are collected.
SUITES := members hosts devices late tools
LEFT_OUT := not timing $(SUITES:%=and not %)
PYTHON_CODE := python tests examples benches scripts
PURE_CRATES := ids network program protocol trace dlc order schedule simulate sync
PURE_TESTS := analysis formats planning programs simulation tidy

SWITCH := python/hocket/tools/testbed/hocket-switch

.PHONY: help ci-verbs setup base switch demo wheel check-wheel check-image test quick replay test-timing $(SUITES:%=test-%) test-clients test-gpu test-frameworks test-fabric test-ray test-torch test-torchft test-vulkan check check-rust rust-is-built check-python docs fmt bench bench-elastic bless fuzz exactly-once meetings elastic streams churn clean

help: ## list the verbs
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

ci-verbs: # that .ci/run runs
	@echo test $(SUITES:%=test-%) test-clients test-timing

setup: base $(STAMPS)/docs $(STAMPS)/clients ## make .venv with hocket in it, and all that checks and tests need

switch: $(SWITCH) ## the program that gives links of a testbed latency, jitter and loss

# Packages are fetched while Rust compiles.
base:
	$(MAKE) --no-print-directory -j4 $(STAMPS)/system $(STAMPS)/development $(STAMPS)/compiled-wheel $(SWITCH)
	$(MAKE) --no-print-directory $(STAMPS)/extension-wheel

demo: ## train on an emulated cluster with DDP and with Hocket, and compare
	$(MAKE) --no-print-directory -j4 $(STAMPS)/testbed $(STAMPS)/demo $(STAMPS)/compiled-$(DEMO_PROFILE) $(SWITCH)
	$(MAKE) --no-print-directory $(STAMPS)/extension-$(DEMO_PROFILE)
	$(BIN)/hocket demo

test: setup ## checks, Rust, and Python but for the suites below; a quarter of an hour
	$(MAKE) --no-print-directory -j2 --output-sync=target rust-is-built check-python docs
	$(CARGO_TEST) --workspace
	$(DOC_TEST)
	$(LOOM)
	$(PYTEST) --doctest-modules --ignore=python/hocket/jax --ignore=python/hocket/tensorflow --ignore=python/hocket/keras --ignore=python/hocket/ray --ignore-glob="python/hocket/torch/trainers/*lightning.py" --ignore=benches/frameworks --ignore=benches/elastic/torchft_rank.py python/hocket benches
	$(PARALLEL) -m "$(LEFT_OUT)" $(ALL_TESTS)

test-members: ## ranks that die, leave and come, at each edge of a step
test-hosts: ## jobs on hosts of a testbed, and under launchers of others: SLURM, Kubernetes, ssh, MPI
test-devices: ## training on the tests' device, and libfabric's fakes
test-late: ## gradients that are merged or late, and steps alone
test-tools: ## examples, benches, the demo's programs, and what looks at a job that runs

$(SUITES:%=test-%): test-%: setup
	$(PARALLEL) -m "$* and not timing" $(shell grep -rl --include='test_*.py' 'pytest\.mark\.$*\b' tests)

test-timing: setup ## what asserts on a time or a rate, alone
	$(BIN)/python scripts/timing-tests $(ALL_TESTS)

quick: base ## what needs no job and no network: programs, protocol, plans, formats; a minute
	RUST_TEST_CRATES="$(PURE_CRATES)" $(CARGO_TEST) --workspace
	$(PARALLEL) -m "$(LEFT_OUT)" $(PURE_TESTS:%=tests/%)

replay: base $(STAMPS)/docs ## whether plans, programs, predictions, orders and all that users rely on are as on commit BASE; REPLAY="--quick": seconds
	$(BIN)/python -m tests.unchanged replay "$(BASE)" $(REPLAY)

test-clients: $(STAMPS)/clients ## Lightning, transformers' Trainer, Accelerate and DeepSpeed on our backend and on Gloo
	$(CLIENTS)/bin/python -m pytest tests/clients

test-gpu: base ## training on this machine's accelerator, against one process and against DDP; then the benchmark
	$(PYTEST) tests/gpu
	$(BIN)/python -m benches.gpu

test-frameworks: $(STAMPS)/frameworks ## JAX, TensorFlow and Keras against one process, in an environment of its own
	JAX_PLATFORMS=cpu $(FRAMEWORKS)/bin/python -m pytest --durations=10 tests/frameworks
	JAX_PLATFORMS=cpu $(FRAMEWORKS)/bin/python -m pytest --doctest-modules python/hocket/jax benches/frameworks
	$(FRAMEWORKS)/bin/python -m pytest --doctest-modules python/hocket/tensorflow python/hocket/keras

test-fabric: base ## libfabric: mirrored structures, links over three providers, hostile fakes, the oracle's programs, killed ranks
	RUST_TEST_CRATES="fabric wire" $(CARGO_TEST) --workspace
	$(PYTEST) tests/hostile/test_fabrics.py tests/oracle

test-ray: $(STAMPS)/ray ## training and sweeps on a local Ray cluster of several node processes, in an environment of its own
	$(RAY)/bin/python -m pytest --durations=10 tests/ray
	$(RAY)/bin/python -m pytest --doctest-modules python/hocket/ray

test-vulkan: $(STAMPS)/vulkan ## training on a device of somebody else's, Mesa's lavapipe, in an environment of its own
	scripts/system-packages vulkan
	$(VULKAN)/bin/python -m pytest --durations=5 tests/vulkan

test-torch: setup ## PyTorch's own distributed tests for our backend, an hour; writes docs/torch-tests.md
	$(PIP) install -q $(CONSTRAINTS) expecttest
	$(BIN)/python -m tests.torch_suite.report

test-torchft: $(STAMPS)/torchft ## torchft's own tests with Hocket in Gloo's place, and with Gloo; writes docs/torchft-tests.md
	$(TORCHFT)/bin/python -m tests.torchft_suite.report

check: check-rust check-python ## formatting, lints, types, layers

check-rust:
	cargo fmt --all --check
	cargo clippy --profile bench --workspace --all-targets -- -D warnings

# The compiler leaves a core idle at the end of each build, which Python's checks and the site use.
rust-is-built: check-rust
	$(CARGO_TEST) --workspace --no-run

check-python: base
	$(BIN)/ruff format --check $(PYTHON_CODE)
	$(BIN)/ruff check $(PYTHON_CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: setup $(STAMPS)/docs ## the documentation as a site in out/site; warnings and broken links are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

TORCH ?= oldest 2.9.0 newest

wheel: $(STAMPS)/wheel ## sdist and manylinux wheels in dist/, checked in bare environments of every Python here
	$(BIN)/python scripts/wheel.py
	$(MAKE) --no-print-directory check-wheel

check-wheel: ## the wheel in dist/ with PyTorch 2.4, 2.9 and the newest (TORCH), on Python 3.11 to 3.13: long, several GB each
	$(BIN)/python scripts/check_wheel.py dist/hocket-*manylinux*x86_64.whl --torch $(TORCH)

check-image: ## the image of examples/kubernetes with the wheel in dist/, built and trained in by podman; BASE_FROM=PREFIX of a Python 3.12: without a registry
	$(BIN)/python scripts/check_image.py $(BASE_FROM:%=--base-from %)

fmt: setup ## format everything
	cargo fmt --all
	$(BIN)/ruff format $(PYTHON_CODE)
	$(BIN)/ruff check --fix $(PYTHON_CODE)

bench-elastic: base $(STAMPS)/torchft ## elastic jobs: changes of the world, in turns with TorchElastic and torchft
	$(TORCHFT)/bin/python -m benches elastic

bless: setup ## write the golden files anew; review the difference
	HOCKET_BLESS=1 $(BIN)/python -m pytest -q tests/programs/test_golden.py tests/cli/test_cli_help.py

FUZZ_S ?= 60

fuzz: ## libFuzzer on every parser of bytes that come from outside, FUZZ_S seconds each; installs cargo-fuzz
	command -v cargo-fuzz > /dev/null || cargo install --locked cargo-fuzz
	for target in $$(cd fuzz && RUSTC_BOOTSTRAP=1 cargo fuzz list); do \
	  RUSTC_BOOTSTRAP=1 cargo fuzz run --sanitizer none $$target -- -max_total_time=$(FUZZ_S) -timeout=10 -rss_limit_mb=2048 || exit 1; \
	done

CASES ?= 100000
PATIENT := --timeout 7200 -o faulthandler_timeout=7300
LONG := $(PYTEST) -q $(PATIENT)

exactly-once: base ## that every gradient is applied once under random schedules: CASES cases in Rust, and CASES trainings of real ranks
	HOCKET_FUZZ_CASES=$(CASES) RUST_TEST_THREADS=2 timeout $(RUST_LIMIT_S) cargo test --profile bench -p hocket-executor --lib properties
	HOCKET_FUZZ_CASES=$(CASES) $(LONG) tests/sessions tests/torch/test_delayed.py tests/torch/test_own_first.py tests/torch/test_learner.py tests/torch/test_scalers.py -k "drawn or reference or overflows"

meetings: base ## that members of simulated elastic jobs meet whatever happens, in CASES courses of events
	HOCKET_FUZZ_CASES=$(CASES) $(PARALLEL) $(PATIENT) tests/meetings

elastic: base ## that jobs survive a death or a hang at each edge of a step, and kills, stops, cuts and joins at random: CASES of each, on real ranks
	HOCKET_FUZZ_CASES=$(CASES) $(PARALLEL) $(PATIENT) tests/torch/test_elastic.py tests/torch/test_elastic_delayed.py tests/torch/test_absent.py tests/torch/test_join.py tests/torch/test_pairs.py tests/torch/test_cuts.py tests/torch/test_resume.py

streams: base ## that calls of tensors on the tests' device have the bits of the CPU, whatever order streams leave open: CASES seeds
	HOCKET_FUZZ_CASES=$(CASES) $(LONG) tests/torch/test_device_backend.py -k calls_have_the_bits

CHURN_S ?= 3600

churn: base ## that a job goes on, and does not grow, while a rank is killed or joins every 0.5 to 2 s, for CHURN_S seconds
	HOCKET_CHURN_S=$(CHURN_S) $(LONG) tests/torch/test_churn.py

bench: base ## benchmarks, in alternation with other libraries; `python -m benches` has more
	$(BIN)/hocket bench all_reduce --against gloo$$(test -x $(BIN)/mpirun && echo ,mpi)
	$(BIN)/hocket bench hook
	$(BIN)/hocket bench trace
	$(BIN)/hocket bench verify
	$(BIN)/python -m benches policies

clean: ## remove what set-up and builds made
	rm -rf $(VENV) target python/hocket/*.so python/hocket/_native.pyi $(SWITCH)

$(STAMPS)/venv: scripts/make-venv
	scripts/make-venv $(PYTHON) $(VENV)
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/testbed: scripts/system-packages $(STAMPS)/venv
	scripts/system-packages testbed
	@touch $@

$(STAMPS)/system: scripts/system-packages $(STAMPS)/venv
	scripts/system-packages
	@touch $@

$(STAMPS)/maturin: constraints.txt $(STAMPS)/venv
	$(PIP) install -q $(CONSTRAINTS) maturin
	@touch $@

# What runs the demo comes first, as PyTorch alone is several GB. The modules that it imports, a part of them, are compiled once
# here, not by four ranks at once.
$(STAMPS)/demo: pyproject.toml constraints.txt $(STAMPS)/maturin
	@echo "== PyTorch, and what the demo needs (a few minutes on a fresh machine)"
	$(BIN)/python scripts/requirements.py demo | xargs -d '\n' $(PIP) install --no-compile --progress-bar on $(CONSTRAINTS)
	$(BIN)/python -c "import torch.distributed.algorithms.ddp_comm_hooks.default_hooks"
	@touch $@

# Tests make errors of warnings, also of those that compiling gives.
$(STAMPS)/development: $(STAMPS)/demo
	@echo "== Python packages of tests and benchmarks"
	$(BIN)/python scripts/requirements.py development | xargs -d '\n' $(PIP) install -q $(CONSTRAINTS)
	-$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib
	@touch $@

$(STAMPS)/docs: $(STAMPS)/development
	@echo "== MkDocs"
	$(BIN)/python scripts/requirements.py docs | xargs -d '\n' $(PIP) install -q $(CONSTRAINTS)
	@touch $@

$(STAMPS)/wheel: pyproject.toml constraints.txt $(STAMPS)/venv
	@echo "== maturin and Zig"
	$(BIN)/python scripts/requirements.py wheel | xargs -d '\n' $(PIP) install -q $(CONSTRAINTS)
	@touch $@

# Environments of their own, which see that of hocket: PyTorch is not installed twice.
packages-clients := lightning transformers accelerate deepspeed
# DeepSpeed has no wheel; its setup imports the PyTorch that is there.
builds-clients := setuptools wheel
packages-frameworks := jax optax tensorflow-cpu keras
packages-ray := ray
packages-torchft := torchft-nightly parameterized
# A PyTorch of its own, which that device was built for.
packages-vulkan := torch torchvulkan
alone-vulkan := yes
constraints-torchft := benches/elastic/constraints.txt
ENVIRONMENTS := clients frameworks ray torchft vulkan

.SECONDEXPANSION:
$(ENVIRONMENTS:%=$(STAMPS)/%): $(STAMPS)/%: $$(or $$(constraints-$$*),tests/$$*/constraints.txt) $(STAMPS)/development $(STAMPS)/extension-wheel
	@echo "== environment $*: $(packages-$*)"
	scripts/make-venv $(PYTHON) $(VENV)/$*
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	  > $$($(VENV)/$*/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/hocket-environment.pth
	$(if $(builds-$*),$(VENV)/$*/bin/python -m pip --disable-pip-version-check install -q $(CONSTRAINTS) -c $< $(builds-$*))
	$(VENV)/$*/bin/python -m pip --disable-pip-version-check install -q $(if $(builds-$*),--no-build-isolation) $(if $(alone-$*),,$(CONSTRAINTS)) -c $< $(packages-$*)
	@touch $@

$(PROFILES:%=$(STAMPS)/compiled-%): $(STAMPS)/compiled-%: $(RUST) pyproject.toml $(STAMPS)/maturin
	@echo "== native extension, profile $*"
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin build --profile $* --skip-auditwheel --out target/development
	@touch $@

# One of them is installed.
$(PROFILES:%=$(STAMPS)/extension-%): $(STAMPS)/extension-%: scripts/native_stub.py $(STAMPS)/compiled-% $(STAMPS)/demo
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --profile $*
	$(BIN)/python scripts/native_stub.py
	@rm -f $(STAMPS)/extension-*
	@touch $@

$(SWITCH): $(wildcard crates/switch/src/*.rs) crates/switch/Cargo.toml Cargo.toml Cargo.lock
	@echo "== the testbed's switch"
	$(PYTHON) scripts/build_switch.py
