"""On a controller: files of its store that lost bytes, locks that were cut off, pages with odd values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from gpufleet.cli import main
from gpufleet.errors import ConfigError
from gpufleet.runtime import Runtime
from gpufleet.settings import Fetch
from gpufleet.stacks import Stack
from gpufleet.wheelhouse.download import Tally
from gpufleet.wheelhouse.items import FetchError, Item, locked_items, whole
from gpufleet.wheelhouse.prepare import ready
from gpufleet.wheelhouse.store import Store
from tests.unit.fleets import product_stacks
from tests.unit.servers import sha256
from tests.unit.tiny_stack import Tiny, store, tiny

__all__ = ["store", "tiny"]  # fixtures


def run(tiny: Tiny, store: Store, **fetch: Any) -> tuple[list[Item], int, str]:
    """(files, how many came from outside, what was said)"""
    tally, said = Tally(), list[str]()
    items = ready(Runtime(tiny.stack, "3.11"), store, tiny.mirrors, Fetch(**fetch), said.append, tally)
    return items, tally.files, "\n".join(said)


def cut(path: Path) -> None:
    with path.open("r+b") as handle:
        handle.truncate(path.stat().st_size - 30)


def rot(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    with path.open("r+b") as handle:  # in place: a wheel that was made here has two names
        handle.write(data)


@pytest.mark.parametrize("damage", [cut, rot])
@pytest.mark.parametrize("name", ["uv", "engine-1.0-py3"])
def test_a_damaged_file_whose_size_no_lock_says_is_fetched_anew(
    tiny: Tiny, store: Store, name: str, damage: Any
) -> None:
    before, _, _ = run(tiny, store)
    (path,) = store.root.glob(f"??/*/{name}*")
    damage(path)
    if name != "uv":  # else the published wheel is not asked for
        (made,) = store.made.glob("*/engine-*.whl")
        made.unlink()
    after, came, _ = run(tiny, store)
    assert set(after) == set(before) and came == 1 and sha256(path.read_bytes()) == path.parent.name


def test_offline_a_damaged_published_wheel_is_lacking(tiny: Tiny, store: Store) -> None:
    run(tiny, store)
    (path,) = store.root.glob("??/*/engine-1.0-py3*")
    cut(path)
    (made,) = store.made.glob("*/engine-*.whl")
    made.unlink()
    with pytest.raises(FetchError, match=r"lacks 1 files of tiny .*: engine 1\.0\. .*gpufleet fetch"):
        run(tiny, store, offline=True)
    assert not path.exists()


@pytest.mark.parametrize("damage", [cut, rot])
@pytest.mark.parametrize("name", ["engine", "quick"])
def test_a_damaged_wheel_that_was_made_is_made_anew_and_goes_nowhere(
    tiny: Tiny, store: Store, name: str, damage: Any
) -> None:
    before, _, _ = run(tiny, store)
    (made,) = store.made.glob(f"*/{name}-*.whl")
    damage(made)
    assert run(tiny, store)[:2] == (before, 0)
    assert all(sha256(store.path(item).read_bytes()) == item.sha256 for item in before)
    assert len(list(store.root.glob(f"??/*/{name}-*gpufleet*.whl"))) == 1, "the damaged one is no file of the store"


def locks() -> list[tuple[Stack, str]]:
    stacks = [stack for stack in product_stacks().values() if stack.installable]
    return [(stack, stack.python[0]) for stack in stacks]


@pytest.mark.parametrize(("stack", "python"), locks(), ids=lambda item: getattr(item, "name", item))
def test_a_lock_that_was_cut_off_is_not_taken_for_a_shorter_one(stack: Stack, python: str) -> None:
    assert len(locked_items(Runtime(stack, python))) > 10
    made = {wheel.name: wheel.version for wheel in stack.wheels}
    made |= {stack.build.name: stack.build.version} if stack.build else {}
    lines = stack.lock_text(python).splitlines(keepends=True)
    ends = [number for number, line in enumerate(lines) if re.match("[a-z]", line)]  # before each package
    for end in ends[:: max(1, len(ends) // 12)]:
        with pytest.raises(ConfigError, match=r"^a\.txt: .*cut off or edited; make the lock again"):
            whole("".join(lines[:end]), "a.txt", made)


@pytest.mark.parametrize(
    "text", ["", "\n", "# Lock of tiny, made by `gpufleet stacks lock`; do not edit.\n# made from: x\n"]
)
def test_an_empty_lock_is_none(tiny: Tiny, store: Store, text: str) -> None:
    (tiny.root / "files/locks/tiny-py311.txt").write_text(text)
    with pytest.raises(ConfigError, match=r"files/locks/tiny-py311\.txt: it is empty"):
        run(tiny, store)
    assert tiny.server.asked == []


PAGES = {
    "another Python": (
        {"python": ["3.99"]},
        r"stacks/tiny\.yaml: .*tiny-py399\.txt: No such file.*`gpufleet stacks lock tiny`",
    ),
    "no script": (
        {"compile": [{"name": "k", "script": "none.py", "into": "x/y"}]},
        r"files/compile/none\.py: No such file or directory; put it there, or correct the page",
    ),
    "the whole folder": ({"compile": [{"name": "k", "script": "a.py", "into": "."}]}, r"compile\.0\.into: is no path"),
    "spelled oddly": ({"compile": [{"name": "k", "script": "a.py", "into": "./x"}]}, r"compile\.0\.into: is no path"),
    "no Python": ({"verify": ["import ("]}, r"verify\.0: is no line of Python: .*'import \('"),
}


@pytest.mark.parametrize(("change", "said"), PAGES.values(), ids=list(PAGES))
def test_a_page_with_an_odd_value_is_refused_by_name(
    tiny: Tiny, change: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny.root)
    page = tiny.root / "files/stacks/tiny.yaml"
    page.write_text(yaml.safe_dump(yaml.safe_load(page.read_text()) | change))
    done = CliRunner().invoke(main, ["fetch", "--stack", "tiny"])
    assert done.exit_code == 2 and re.search(said, done.output), done.output
    assert tiny.server.asked == []


def test_a_patch_that_does_not_apply_says_what_to_do(tiny: Tiny, store: Store) -> None:
    patch = tiny.root / "files/patches/engine-1/0001-two.patch"
    patch.write_text(patch.read_text().replace("-x = 1", "-x = 7"))
    with pytest.raises(
        FetchError, match=r"0001-two\.patch:3: engine/__init__\.py, hunk 1: .*`gpufleet patches check tiny`"
    ):
        run(tiny, store)
