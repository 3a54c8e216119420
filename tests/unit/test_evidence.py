"""The kit's verb `evidence`: what a bundle needs of a box beside its facts; nothing is changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hostkit import __main__ as kit
from hostkit import evidence, systemd, unit_log
from hostkit.errors import Failure
from hostkit.roots import Roots
from tests.unit.boxes import put


@pytest.fixture
def root(tmp_path: Path) -> Roots:
    put(tmp_path, "/etc/hostname", "keller\n")
    put(tmp_path, "/etc/hosts", "127.0.0.1 localhost\n10.0.0.2 keller.werk.example keller # mine\n10.0.0.3 nas\n")
    put(tmp_path, "/etc/resolv.conf", "nameserver 10.0.0.1\nsearch werk.example lan.\n")
    put(tmp_path, "/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nanna:x:1000:1000:Anna Kobold,,,:/home/anna:/bin/sh\n")
    put(tmp_path, "/etc/machine-id", "0123456789abcdef0123456789abcdef\n")
    put(tmp_path, "/sys/class/net/eth0/address", "02:42:ac:11:00:02\n")
    put(tmp_path, "/sys/class/dmi/id/product_serial", "ABC123456\n")
    put(tmp_path, "/sys/class/dmi/id/board_serial", "To be filled by O.E.M.\n")
    put(tmp_path, "/sys/block/sda/device/wwid", "naa.5002538e\n")
    put(tmp_path, "/proc/cmdline", "root=/dev/sda1 quiet\n")
    put(tmp_path, "/proc/7/cmdline", "vllm\0serve\0--port\08000\0")
    packages = "/opt/gpufleet/runtimes/engine-1/lib/python3.11/site-packages"
    put(tmp_path, f"{packages}/torch-2.13.0+cpu.dist-info/METADATA", "")
    put(tmp_path, f"{packages}/nvidia_nccl_cu13-2.27.7.dist-info/METADATA", "")
    put(tmp_path, "/opt/gpufleet/runtimes/.engine-2.building/x", "")
    return Roots(str(tmp_path))


def test_who_and_what_the_box_is(root: Roots) -> None:
    found = evidence.identity(root)
    assert found == {
        "hosts": ["keller", "localhost", "keller.werk.example", "nas"],
        "domains": ["werk.example", "lan"],
        "users": ["anna"],
        "people": ["Anna Kobold"],
        "macs": ["02:42:ac:11:00:02"],
        "serials": ["ABC123456", "naa.5002538e"],
        "ids": ["0123456789abcdef0123456789abcdef"],
    }


def test_a_box_that_tells_nothing(tmp_path: Path) -> None:
    assert not any(evidence.identity(Roots(str(tmp_path))).values())


def test_packages_state_and_words_of_a_process(root: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd, "show", lambda unit: {"pid": 7 if unit == "gpufleet-tiny.service" else None})
    monkeypatch.setattr(unit_log, "last", lambda names, lines: [f"{names[0]} {lines}"])
    found = evidence.run({"instances": ["tiny", "other"], "events": 3, "log": 9}, root)
    assert found["packages"] == {"engine-1": {"nvidia_nccl_cu13": "2.27.7", "torch": "2.13.0+cpu"}}
    assert found["argv"] == {"tiny": ["vllm", "serve", "--port", "8000"], "other": []}
    assert found["logs"] == {"tiny": ["tiny 9"], "other": ["other 9"]} and found["errors"] == []
    assert found["cmdline"] == "root=/dev/sda1 quiet" and found["state"] is None


@pytest.mark.parametrize(("text", "kept"), [('{"instances": {}}', {"instances": {}}), ("torn {", "torn {")])
def test_a_state_is_told_as_it_is(tmp_path: Path, text: str, kept: Any) -> None:
    put(tmp_path, "/var/lib/gpufleet/state.json", text)
    assert evidence.kept(Roots(str(tmp_path))) == kept


def test_a_log_that_cannot_be_read_costs_itself(root: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> list[str]:
        raise Failure("journalctl failed", "look")

    monkeypatch.setattr(unit_log, "last", broken)
    found = evidence.run({"instances": ["tiny"], "events": 0, "log": 9}, root)
    assert found["errors"] == ["tiny: journalctl failed"] and found["packages"]


def test_reading_waits_for_no_lock_and_answers_in_json(root: Roots) -> None:
    assert "evidence" in kit.UNLOCKED
    assert json.dumps(evidence.run({"instances": [], "events": 1, "log": 0}, root))
