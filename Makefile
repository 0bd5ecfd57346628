# Farrier's verbs. Each sets up what it needs in .venv first; nothing else has to be installed
# but Python >= 3.11 and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.farrier-ready
EXPORTER := build/exports/bin/python

.PHONY: demo test check bench exports public conformance chaos explore format clean

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Farrier needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	$(BIN)/python -m compileall -q compiler farm server worker rpc_device bench  # a first start in a third of the time
	@touch $@

demo: $(READY)  ## The main job, end to end: serve, upload, tune, verify, download, compare.
	$(BIN)/python -m bench.demo

test: $(READY)  ## All tests but the slow ones.
	$(BIN)/python -m pytest -n 2 -m "not slow"

check: $(READY)  ## Style, types, layering.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)  ## Latency beside what a user would pick instead; ARGS="--quick" takes a minute.
	$(BIN)/python -m bench $(ARGS)

exports: $(READY) $(EXPORTER)  ## Small exports of known architectures, by torch; compiled and compared.
	$(EXPORTER) -m bench.exports tiny build/models
	$(BIN)/python -m bench.real build/models rapidocr_cls rapidocr_det rapidocr_rec $(ARGS)

public: $(READY) $(EXPORTER)  ## Public models and torch's default exports, with no option at all; 7 GB of disk.
	$(EXPORTER) -m bench.exports full build/full
	$(BIN)/python -m bench.public
	$(BIN)/python -m bench.public build/full

$(EXPORTER):
	$(PYTHON) -m venv build/exports
	build/exports/bin/pip install -q torch==2.13.0 transformers onnx onnxscript

conformance: $(READY)  ## ONNX's own backend suite; writes docs/conformance.md.
	$(BIN)/python -m bench.conformance $(ARGS)

chaos: $(READY)  ## Processes killed, stopped and cut off at every step.
	$(BIN)/python -m pytest -m chaos

explore: $(READY)  ## Property tests and random models on examples not seen before.
	$(BIN)/python -m pytest -n 2 -m "not slow" --explore tests/fuzz tests/ir tests/lower tests/schedule

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
