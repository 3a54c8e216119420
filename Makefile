# Two commands matter: `make demo` and `make test`. Everything they need is installed by them.
PYTHON := .venv/bin/python

.PHONY: demo test large bench unit test-unit test-operations lint lab lab-down clean

demo: .venv/ready
	@tools/demo

test: .venv/ready lint
	@$(MAKE) --no-print-directory unit
	$(PYTHON) -m pytest tests/lab

unit: .venv/ready # both at once, each in a process of its own: pyinfra makes its threads and sockets gevent's
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target test-unit test-operations

test-unit: .venv/ready
	$(PYTHON) -m pytest tests/unit tests/golden

test-operations: .venv/ready
	$(PYTHON) -m pytest tests/operations

large: .venv/ready # what takes minutes each, or environments of several GB, made once: some hours
	$(PYTHON) -m pytest -m large tests

bench: .venv/ready # an hour or two of a quiet machine; a part of it: make bench BENCH="--boxes 8 --rounds 3 --delay 0"
	$(PYTHON) -m benchmarks $(BENCH)

lint: .venv/ready
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

lab: .venv/ready
	$(PYTHON) -m lab up 3 --topology dual-2080ti-nv2 --topology dual-3090-nv4 --topology cpu-only

lab-down: .venv/ready
	$(PYTHON) -m lab down

.venv/ready: pyproject.toml tools/venv
	@tools/venv

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
