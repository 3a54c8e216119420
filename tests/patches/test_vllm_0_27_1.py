"""What the patches of vLLM 0.27.1 do, shown in the genuine engine with the series applied.

There is no GPU: which kernel is chosen and what it is given is shown, not that it runs on a card.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.patches.support import checks, patched_tree, run

pytestmark = pytest.mark.large


@pytest.fixture(scope="session")
def touched_and_tree(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    tree = tmp_path_factory.mktemp("patched")
    return patched_tree(tree), tree


@pytest.fixture(scope="session")
def results(touched_and_tree: tuple[list[str], Path]) -> dict[tuple[str, str], str]:
    _, tree = touched_and_tree
    files = sorted({file for file, _ in checks()})
    return {(file, name): why for file in files for name, why in run(tree, file).items()}


def test_every_patched_module_imports(touched_and_tree: tuple[list[str], Path]) -> None:
    touched, tree = touched_and_tree
    modules = [path.removesuffix(".py").replace("/", ".") for path in touched]
    assert len(modules) == 9
    assert run(tree, "--import", *modules) == dict.fromkeys(modules, "")


@pytest.mark.parametrize(("file", "name"), checks())
def test_inside(file: str, name: str, results: dict[tuple[str, str], str]) -> None:
    assert results[file, name] == ""
