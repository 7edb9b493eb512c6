# SPDX-License-Identifier: MIT
# Everything a user or CI runs: `make demo`, `make test`; for developers `make quick`, `make check`, `make fuzz`, `make bench`, `make test-arm`.
PYTHON ?= python3
VENV ?= .venv
# What tests need beside the base packages; `test,browser` also tests reports in chromium.
EXTRAS ?= test
BIN := $(VENV)/bin
# Tests share the cores, one process each. Threads that wait for work leave the core to the other processes.
# No test takes minutes; one that hangs (an emulator, a browser, a cluster) fails with its stack.
# What NumPy says of kernels' arguments is kept (tests/kernels/oracle.py).
# Bytecode, with asserts as pytest rewrites them, is kept as well.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=2 MPNET_ORACLE=$(CURDIR)/.cache/oracle $(BIN)/python -m pytest -n logical --maxprocesses 8 --dist worksteal --timeout 600
# What has to be built; Python modules are used where they lie.
SOURCES := $(shell find csrc -type f -name '*.[chpt]*')

.PHONY: demo test quick check docs sanitize fuzz bench test-arm mprun mprun-arm dist dist-arm clean tools

tools:
	@command -v $(PYTHON) >/dev/null 2>&1 || { echo "mpnet: python3 is missing; install Python 3.10 or newer (Debian: apt-get install python3 python3-venv python3-dev)" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "mpnet: $(PYTHON) is older than 3.10; set PYTHON=... to a newer one" >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "mpnet: Python's venv module is missing (Debian: apt-get install python3-venv)" >&2; exit 2; }
	@$(PYTHON) -c 'import os, sys, sysconfig as s; sys.exit(not os.path.exists(os.path.join(s.get_path("include"), "Python.h")))' || { echo "mpnet: Python's header files are missing (Debian: apt-get install python3-dev)" >&2; exit 2; }
	@command -v $(firstword $(CC)) >/dev/null 2>&1 || { echo "mpnet: the C compiler '$(firstword $(CC))' is missing; install gcc or clang, or set CC=..." >&2; exit 2; }

$(BIN)/.base: pyproject.toml | tools
	@echo "mpnet: making a virtual environment in $(VENV), with what builds mpnet"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check "setuptools>=77" wheel "cffi>=1.15"
	@touch $@

$(BIN)/.built: $(BIN)/.base $(SOURCES) setup.py
	@echo "mpnet: compiling the C core for every instruction set, and fetching NumPy, OpenCV and others: once, a minute or two on two cores"
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-build-isolation -e .
	@touch $@

# mpnet itself is there; this adds what its extras name.
$(BIN)/.installed: $(BIN)/.built
	@echo "mpnet: installing what its extras ($(EXTRAS)) name"
	$(BIN)/python -m pip install -q --disable-pip-version-check "mpnet[$(EXTRAS)]"
	@touch $@

demo: $(BIN)/.built
	@echo "mpnet: is built; the demo draws scenes, runs the packaged network on them and prints each command before it runs"
	$(BIN)/mpnet demo

test: $(BIN)/.installed
	$(PYTEST)

quick: $(BIN)/.installed
	$(PYTEST) -m 'not slow'

$(BIN)/.checked: $(BIN)/.installed
	$(BIN)/python -m pip install -q --disable-pip-version-check "mpnet[test,check]"
	@touch $@

check: $(BIN)/.checked
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini
	PYTHON=$(BIN)/python tools/audit.sh
	find csrc tests -name '*.[ch]' | xargs $(BIN)/clang-format --dry-run -Werror
	MPNET_CFLAGS=-Werror $(BIN)/python setup.py -q build_ext --force --build-temp .cache/werror --build-lib .cache/werror
	$(MAKE) sanitize test

# The C core under address, undefined-behaviour and thread sanitizers.
sanitize: $(BIN)/.installed
	PYTHON=$(BIN)/python tests/kernels/sanitize.sh $(firstword $(CC))
	PYTHON=$(BIN)/python tests/kernels/sanitize_threads.sh $(firstword $(CC))

$(BIN)/.docs: $(BIN)/.built
	$(BIN)/python -m pip install -q --disable-pip-version-check "mpnet[docs]"
	@touch $@

# The documentation as a site in build/site; a warning is an error.
docs: $(BIN)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q --strict

# A hunt for files that break readers and for moments at which a kill loses something, of all targets or one; see docs/reliability.md.
MINUTES ?= 10
TARGET ?=
fuzz: $(BIN)/.installed
	$(BIN)/python -m tests.fuzz.run $(MINUTES) $(TARGET)

bench: $(BIN)/.built
	$(BIN)/mpnet bench cfg/yolov3-tiny.cfg

test-arm: $(BIN)/.installed
	PYTHON=$(BIN)/python tests/arm/run.sh

# sdist and wheel, each installed into a clean environment and tested there; the wheel for AArch64, tried under emulation (alone: dist-arm).
dist: tools
	PYTHON=$(PYTHON) tools/dist.sh

dist-arm: $(BIN)/.installed
	PYTHON=$(BIN)/python tests/arm/wheel.sh

# The program for boards (docs/mprun.md): build/mprun/mprun with CC, and one static file for AArch64.
mprun:
	@$(MAKE) -s -C csrc/mprun OUT=$(CURDIR)/build/mprun

# Read-only relocations would be padded to pages of 64 kB, and a static program has next to none.
mprun-arm:
	@$(MAKE) -s -C csrc/mprun OUT=$(CURDIR)/build/mprun-arm CC=aarch64-linux-gnu-gcc LDFLAGS="-static -Wl,-z,norelro"

clean:
	rm -rf $(VENV) build .cache *.egg-info mpnet/kernels/_core*.so mpnet/kernels/_core.c
