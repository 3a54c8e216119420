"""What the patches of vLLM do, shown in each genuine engine with its series applied.

There is no GPU: which kernel is chosen and what it is given is shown, not that it runs on a card.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpufleet import catalogue, wheel
from gpufleet.paths import product_files
from gpufleet.stacks import Stack
from tests.golden.environments import python_with
from tests.patches.support import ENGINES, checks, patched_tree, run

pytestmark = pytest.mark.large


@pytest.fixture(scope="session", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def touched_and_tree(engine: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    tree = tmp_path_factory.mktemp("patched")
    return patched_tree(engine, tree), tree


@pytest.fixture(scope="session")
def results(engine: str, touched_and_tree: tuple[list[str], Path]) -> dict[tuple[str, str], str]:
    _, tree = touched_and_tree
    files = sorted({file for file, _ in checks()})
    return {(file, name): why for file in files for name, why in run(engine, tree, file).items()}


def test_every_patched_module_imports(engine: str, touched_and_tree: tuple[list[str], Path]) -> None:
    touched, tree = touched_and_tree
    modules = [path.removesuffix(".py").replace("/", ".") for path in touched]
    assert len(modules) == 9
    assert run(engine, tree, "--import", *modules) == dict.fromkeys(modules, "")


def test_the_stack_changes_requirements_that_the_genuine_wheel_has(engine: str) -> None:
    """FlashInfer is what the stack says, once, and without its cubins: 0.24.0 asks for another, 0.27.1 for this one."""
    stack = catalogue.load(Stack, "stack", [product_files() / "stacks"])[f"{engine}-sm75"]
    (entry,) = (it for it in stack.wheels if it.name == "vllm")
    (metadata,) = python_with(engine).parent.parent.glob("lib/python3.*/site-packages/vllm-*.dist-info/METADATA")
    made = wheel._metadata(metadata.read_bytes(), entry.filename, "vllm", "1", entry).decode()
    asked = [line for line in made.splitlines() if line.startswith("Requires-Dist: flashinfer")]
    assert stack.versions and asked == [f"Requires-Dist: flashinfer-python=={stack.versions.flashinfer}"]


@pytest.mark.parametrize(("file", "name"), checks())
def test_inside(file: str, name: str, results: dict[tuple[str, str], str]) -> None:
    assert results[file, name] == ""
