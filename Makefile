# Two commands matter: `make demo` and `make test`. Everything they need is installed by them.
PYTHON := .venv/bin/python

.PHONY: demo test large unit lint lab lab-down clean

demo: .venv/ready
	@tools/demo

test: .venv/ready lint
	$(PYTHON) -m pytest tests/unit tests/golden
	$(PYTHON) -m pytest tests/operations # by themselves: pyinfra makes the threads and sockets of a process gevent's
	$(PYTHON) -m pytest tests/lab

unit: .venv/ready
	$(PYTHON) -m pytest tests/unit tests/golden
	$(PYTHON) -m pytest tests/operations

large: .venv/ready # environments of several GB, made once
	$(PYTHON) -m pytest -m large tests

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
