"""Packages by apt on a box: keys by their fingerprint, no driver change, causes and remedies for what apt says."""

from __future__ import annotations

from pathlib import Path

import pytest

from hostkit import apt, openpgp, shell
from hostkit.errors import Failure

KEY = (Path(__file__).parent / "data" / "key.asc").read_bytes()
FINGERPRINT = "FE235A1BD8BE9A4F4B4593996106EE4A9F120233"  # what gpg --fingerprint says of it


def test_the_fingerprint_is_gpgs() -> None:
    assert openpgp.fingerprints(KEY) == {FINGERPRINT}
    assert openpgp.fingerprints(openpgp.dearmor(KEY)) == {FINGERPRINT}


@pytest.mark.parametrize("data", [b"", b"<html>", KEY[:90], b"\x99\x01", b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n"])
def test_what_is_no_key_has_no_fingerprint(data: bytes) -> None:
    assert FINGERPRINT not in openpgp.fingerprints(data)


def test_a_second_key_in_the_file_is_noticed() -> None:
    another = b"\x98\x02\x04\x00"
    assert openpgp.fingerprints(openpgp.dearmor(KEY) + another) != {FINGERPRINT}
    unknown = b"\x98\x02\x06\x00"
    assert "UNKNOWN" in openpgp.fingerprints(openpgp.dearmor(KEY) + unknown)


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(apt, "SOURCES", str(tmp_path / "sources"))
    monkeypatch.setattr(apt, "KEYRINGS", str(tmp_path / "keyrings"))
    monkeypatch.setattr(apt, "fetch_bytes", lambda url, limit: KEY)
    (tmp_path / "sources").mkdir()
    return tmp_path


def repository(fingerprint: str = FINGERPRINT) -> dict[str, str]:
    return {
        "name": "cuda",
        "url": "http://192.0.2.1/cuda/",
        "key_url": "http://192.0.2.1/k",
        "fingerprint": fingerprint,
    }


def test_the_repository_is_written_with_its_own_key(sources: Path) -> None:
    apt.add_repository(repository(" ".join(FINGERPRINT[i : i + 4].lower() for i in range(0, 40, 4))))
    text = (sources / "sources/cuda.sources").read_text()
    assert f"Signed-By: {sources}/keyrings/cuda.asc" in text and "URIs: http://192.0.2.1/cuda/" in text
    assert (sources / "keyrings/cuda.asc").read_bytes() == KEY


def test_another_key_than_the_pinned_one_is_refused_and_nothing_written(sources: Path) -> None:
    with pytest.raises(Failure, match="not the pinned"):
        apt.add_repository(repository("0" * 40))
    assert list((sources / "sources").iterdir()) == []


def test_a_repository_the_box_has_already_is_left_alone(sources: Path) -> None:
    (sources / "sources/mine.list").write_text("deb [signed-by=/x] http://192.0.2.1/cuda /\n")
    apt.add_repository(repository())
    assert [path.name for path in (sources / "sources").iterdir()] == ["mine.list"]


def test_the_driver_is_never_changed() -> None:
    apt.refuse_driver_changes("Inst cuda-toolkit-13-0 (13.0)\nInst g++ (12)\n")
    for line in ("Inst nvidia-driver-590 (590)", "Remv libnvidia-compute-580 [580]", "Inst cuda-drivers (590)"):
        with pytest.raises(Failure, match="NVIDIA driver"):
            apt.refuse_driver_changes(f"Inst cuda-toolkit-13-0 (13.0)\n{line}\n")


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("E: Unable to locate package g++", "apt knows no package g++"),
        ("E: Unable to locate package g+\nE: Unable to locate package libnuma1", "apt knows no package g++, libnuma1"),
        ("E: Package 'libnuma1' has no installation candidate", "apt knows no package libnuma1"),
        ("E: Could not get lock /var/lib/dpkg/lock-frontend. It is held", "another program holds apt's lock"),
        ("E: write error - write (28: No space left on device)", "the disk is full"),
        ("E: something nobody has seen", "apt failed: E: something nobody has seen"),
    ],
)
def test_what_apt_says_becomes_a_cause_and_a_remedy(said: str, cause: str) -> None:
    ended = shell.Ended(["apt-get"], 100, f"Reading package lists...\n{said}")
    failure = apt.explain(ended, ["apt-get", "install", "g++", "libnuma1"])
    assert failure.cause.startswith(cause) and failure.remedy
