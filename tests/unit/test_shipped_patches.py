"""The patches that the product ships are in order, and each says what it is for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpufleet.patches import Patch, read_series

FOLDERS = sorted((Path(__file__).parents[2] / "files" / "patches").iterdir())
PATCHES = [pytest.param(it, id=f"{folder.name}/{it.name}") for folder in FOLDERS for it in read_series(folder).patches]
FIELDS = ["What", "Why", "Upstream", "Seen by"]


def header(patch: Patch) -> str:
    return patch.text.partition("\n--- ")[0]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_series_is_numbered_in_its_order(folder: Path) -> None:
    names = [patch.name for patch in read_series(folder).patches]
    assert [name[:4] for name in names] == [f"{number:04d}" for number in range(1, len(names) + 1)]
    assert all(re.fullmatch(r"\d{4}-[a-z0-9-]+\.patch", name) for name in names), names


@pytest.mark.parametrize("engine", ["vllm-0.24.0", "vllm-0.27.1"])
def test_what_vllm_gets(engine: str) -> None:
    (folder,) = (folder for folder in FOLDERS if folder.name == engine)
    assert [patch.name for patch in read_series(folder).patches] == [
        "0001-unquantised-mtp-draft.patch",
        "0002-flashinfer-attention-sm75.patch",
        "0003-flashinfer-sampling-sm75.patch",
        "0004-gdn-prefill-flashqla.patch",
        "0005-speculative-sync-policy.patch",
        "0006-default-thinking-budget.patch",
    ]


@pytest.mark.parametrize("patch", PATCHES)
def test_the_header_has_each_field_once_in_order(patch: Patch) -> None:
    nothing, *rest = re.split(rf"^({'|'.join(FIELDS)}):", header(patch), flags=re.MULTILINE)
    assert (nothing, rest[::2]) == ("", FIELDS)
    said = dict(zip(rest[::2], rest[1::2], strict=True))
    for field, text in said.items():
        assert len(text.split()) > 5, f"{field} says nothing"
    assert re.search(r"#\d+|no issue known", said["Upstream"]), "an issue, or that none is known"


@pytest.mark.parametrize("patch", PATCHES)
def test_only_python_changes_and_its_variables_are_named(patch: Patch) -> None:
    files = re.findall(r"^\+\+\+ b/(\S+)$", patch.text, re.MULTILINE)
    assert files and all(file.endswith(".py") for file in files), files
    added = "\n".join(re.findall(r"^\+(?!\+\+ )(.*)$", patch.text, re.MULTILINE))
    for variable in set(re.findall(r"\bVLLM_[A-Z0-9_]+", added)):
        assert variable in header(patch), f"{variable} is in the code, not in the header"
