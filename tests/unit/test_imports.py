"""Dependencies point one way: operations → gpufleet; hostkit alone; the core knows neither pyinfra nor paramiko."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.command import REPOSITORY

ALLOWED = {
    "gpufleet": {"gpufleet", "pydantic", "pydantic_core", "yaml", "jinja2", "rich", "click",
                 "packaging", "unidiff"},
    "hostkit": {"hostkit", "pynvml", "_sha2", "_sha256"},  # the last are Python's own, since and before 3.12
    "operations": {"operations", "gpufleet", "pyinfra", "pyinfra_cli", "paramiko", "gevent", "click"},
}  # fmt: skip
# What the controller fetches, it fetches as boxes do.
FOLDERS = {"gpufleet/wheelhouse": {"hostkit"}, "gpufleet/checkpoint": {"hostkit", "huggingface_hub"}}
# A command that reaches boxes does it by the operations, imported only when it runs: the core stays pure.
CHILD = {"gpufleet/hub_child.py": {"huggingface_hub"}}  # and nothing else may: it reads its settings on import
COMMANDS = {f"gpufleet/commands/{name}.py": {"operations"} for name in ("bundle", "discover", "gc", "instead", "reach")}
# What is asked of a model on a box is asked the same of one that lies here.
COMMANDS["gpufleet/commands/models_check.py"] = {"hostkit"}
# And addresses are tried from here as boxes try them.
COMMANDS["gpufleet/commands/doctor.py"] = {"operations", "hostkit"}


def imported(path: Path) -> set[str]:
    """The top-level packages a file imports, wherever in it."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_a_package_imports_only_what_it_may(package: str) -> None:
    import sys

    for path in sorted((REPOSITORY / package).rglob("*.py")):
        place = path.relative_to(REPOSITORY)
        more = COMMANDS.get(str(place), set()) | CHILD.get(str(place), set()) | FOLDERS.get(str(place.parent), set())
        assert imported(path) - ALLOWED[package] - more - set(sys.stdlib_module_names) == set(), path
