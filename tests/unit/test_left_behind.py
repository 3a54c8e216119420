"""Boxes that are in the inventory no more: named with what they served and where, found again, forgotten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpufleet import inventory, known, left_behind
from gpufleet.errors import ConfigError
from gpufleet.fleet import Fleet
from tests.unit.fleets import cpu_facts

HERE = ("turing-1", {"ssh_hostname": "192.0.2.11", "ssh_user": "root", "ssh_password": "s3cret"})
GONE = ("turing-3", {"ssh_hostname": "192.0.2.13", "ssh_port": 2222, "ssh_key": "~/.ssh/id"})


def fleet(root: Path, *boxes: tuple[str, dict[str, Any]]) -> Fleet:
    (root / "inventory").mkdir(exist_ok=True)
    (root / "inventory" / "home.py").touch()
    return inventory.load(boxes, root / "inventory" / "home.py")


@pytest.fixture
def later(tmp_path: Path) -> Fleet:
    """Both were deployed; then one was taken out."""
    before = fleet(tmp_path, HERE, GONE)
    for name, machine in (("turing-1", "1" * 32), ("turing-3", "3" * 32)):
        known.keep(before.facts_folder, name, cpu_facts(machine_id=machine, instances={"qwen": {"port": 8000}}))
    left_behind.note(before, ["turing-1", "turing-3"])
    return fleet(tmp_path, HERE)


def test_a_box_that_was_taken_out_is_named_with_what_it_served(later: Fleet) -> None:
    (line,) = left_behind.lines(later)
    assert line.startswith(
        "turing-3 is not in the inventory any more; when last looked at it served qwen on 192.0.2.13."
    )
    assert f"`gpufleet remove {later.inventory} turing-3`" in line and "gpufleet forget" in line


def test_what_it_got_after_the_only_look_is_known_by_its_plan(later: Fleet, tmp_path: Path) -> None:
    both = fleet(tmp_path, HERE, GONE)
    known.keep(both.facts_folder, "turing-3", cpu_facts(machine_id="3" * 32))
    left_behind.note(both, ["turing-3"], {"turing-3": ["qwen", "ornith"]})
    left_behind.note(both, ["turing-3"])  # a look without a plan
    (line,) = left_behind.lines(later)
    assert "any more; it was to serve qwen, ornith on 192.0.2.13." in line
    left_behind.taken_in(later, "turing-3", None)
    assert "serves" not in later.addresses["turing-3"]


def test_no_secret_is_kept(later: Fleet) -> None:
    path = later.facts_folder / left_behind.FILE
    assert "s3cret" not in path.read_text()
    assert json.loads(path.read_text())["turing-3"] == {
        "ssh_hostname": "192.0.2.13", "ssh_port": 2222, "ssh_key": "~/.ssh/id",
    }  # fmt: skip


def test_it_can_be_reached_as_before(later: Fleet) -> None:
    left_behind.taken_in(later, "turing-3", None)
    assert later.connection("turing-3")["ssh_port"] == 2222 and "turing-3" in later.boxes


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("192.0.2.99", {"ssh_hostname": "192.0.2.99", "ssh_port": 2222}),
        ("anna@box.example:22", {"ssh_hostname": "box.example", "ssh_user": "anna", "ssh_port": 22}),
        ("2001:db8::7", {"ssh_hostname": "2001:db8::7", "ssh_port": 2222}),
        ("[2001:db8::7]:22", {"ssh_hostname": "2001:db8::7", "ssh_port": 22}),
    ],
)
def test_an_address_that_is_given_wins(later: Fleet, given: str, found: dict[str, Any]) -> None:
    left_behind.taken_in(later, "turing-3", given)
    assert found.items() <= later.addresses["turing-3"].items()


def test_without_an_address_it_has_to_be_given(later: Fleet) -> None:
    (later.facts_folder / left_behind.FILE).unlink()
    (line,) = left_behind.lines(later)
    assert "turing-3 --address ADDRESS`" in line and " on " not in line.split(".")[0]
    with pytest.raises(ConfigError, match="nobody knows its address: give --address"):
        left_behind.taken_in(later, "turing-3", None)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("192.0.2.99:99999", "ssh_port is 99999"),
        ("192.0.2.99:0", "ssh_port is 0"),
        ("a@b@192.0.2.99", "write"),
        ("", "write"),
    ],
)
def test_an_address_that_can_be_none_is_refused(later: Fleet, given: str, says: str) -> None:
    with pytest.raises(ConfigError, match=f"--address {given!r}: {says}"):
        left_behind.taken_in(later, "turing-3", given)


def test_an_address_of_a_listed_box_is_refused(later: Fleet) -> None:
    with pytest.raises(ConfigError, match="leave out --address"):
        left_behind.taken_in(later, "turing-1", "192.0.2.99")
    with pytest.raises(ConfigError, match=r"write \[USER@\]HOST"):
        left_behind.taken_in(later, "turing-3", "anna@")


@pytest.mark.parametrize("how", ["address", "machine"])
def test_a_box_that_was_renamed_is_never_removed_by_its_old_name(later: Fleet, tmp_path: Path, how: str) -> None:
    address = GONE[1] if how == "address" else {"ssh_hostname": "192.0.2.77"}
    known.keep(later.facts_folder, "new-3", cpu_facts(machine_id="3" * 32 if how == "machine" else "9" * 32))
    renamed = fleet(tmp_path, HERE, ("new-3", address))
    (line,) = left_behind.lines(renamed)
    assert "is new-3 now" in line and "gpufleet forget" in line and "gpufleet remove" not in line
    with pytest.raises(ConfigError, match="turing-3 is new-3 of the inventory now"):
        left_behind.taken_in(renamed, "turing-3", None)


def test_a_forgotten_box_is_not_named_any_more(later: Fleet) -> None:
    assert left_behind.forget(later, "turing-3") and not left_behind.forget(later, "turing-3")
    assert list(left_behind.lines(later)) == []
    assert list(left_behind.read(later.facts_folder)) == ["turing-1"]


def test_a_folder_that_cannot_be_written_stops_no_run(
    later: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError("no")

    monkeypatch.setattr(Path, "write_text", refuse)
    moved = fleet(tmp_path, ("turing-1", {"ssh_hostname": "192.0.2.50"}))
    left_behind.note(moved, ["turing-1"])
    assert left_behind.read(later.facts_folder)["turing-1"]["ssh_hostname"] == "192.0.2.11"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"turing-3": 3}'])
def test_a_damaged_file_of_addresses_knows_none(later: Fleet, text: str) -> None:
    (later.facts_folder / left_behind.FILE).write_text(text)
    assert left_behind.read(later.facts_folder) == {}
    assert "--address" in next(left_behind.lines(later))
