"""Packages by apt on a box: keys by their fingerprint, no driver change, causes and remedies for what apt says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hostkit import apt, apt_call, apt_sources, fetch, holds, openpgp, shell
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
    monkeypatch.setattr(apt_sources, "LIST", str(tmp_path / "sources.list"))
    monkeypatch.setattr(apt_sources, "SOURCES", str(tmp_path / "sources"))
    monkeypatch.setattr(apt_sources, "KEYRINGS", str(tmp_path / "keyrings"))
    monkeypatch.setattr(fetch, "fetch_bytes", lambda url, limit: KEY)
    (tmp_path / "sources").mkdir()
    return tmp_path


def repository(fingerprint: str = FINGERPRINT, url: str = "http://192.0.2.1/cuda/") -> dict[str, str]:
    return {"name": "cuda", "url": url, "key_url": "http://192.0.2.1/k", "fingerprint": fingerprint}


def test_the_repository_is_written_with_its_own_key(sources: Path) -> None:
    apt_sources.add_repository(repository(" ".join(FINGERPRINT[i : i + 4].lower() for i in range(0, 40, 4))))
    text = (sources / "sources/cuda.sources").read_text()
    assert f"Signed-By: {sources}/keyrings/cuda.asc" in text and "URIs: http://192.0.2.1/cuda/" in text
    assert (sources / "keyrings/cuda.asc").read_bytes() == KEY


def test_another_key_than_the_pinned_one_is_refused_and_nothing_written(sources: Path) -> None:
    with pytest.raises(Failure, match="not the pinned"):
        apt_sources.add_repository(repository("0" * 40))
    assert list((sources / "sources").iterdir()) == []


def test_a_right_source_is_left_and_a_damaged_or_old_one_written_again(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apt_sources.add_repository(repository())
    key, source = sources / "keyrings/cuda.asc", sources / "sources/cuda.sources"
    asked: list[str] = []
    monkeypatch.setattr(fetch, "fetch_bytes", lambda url, limit: asked.append(url) or KEY)
    apt_sources.add_repository(repository())
    assert asked == []
    key.write_bytes(KEY[:90])
    apt_sources.add_repository(repository())
    assert key.read_bytes() == KEY and len(asked) == 1
    apt_sources.add_repository(repository(url="http://192.0.2.2/cuda/"))
    assert "192.0.2.2" in source.read_text() and "192.0.2.1" not in source.read_text()


OWNERS = [
    ("mine.list", "deb [arch=amd64 signed-by=/x] https://192.0.2.1/cuda /\n"),
    (
        "mine.sources",
        "Types: deb\nURIs:\n http://192.0.2.7/x\n http://192.0.2.1/cuda\nSuites: /\nSigned-By:\n -----\n .\n x\n",
    ),
]


@pytest.mark.parametrize(("name", "text"), OWNERS)
def test_a_repository_the_box_has_already_is_left_alone_and_ours_makes_way(sources: Path, name: str, text: str) -> None:
    apt_sources.add_repository(repository())
    (sources / "sources" / name).write_text(text)
    apt_sources.add_repository(repository())
    assert [path.name for path in (sources / "sources").iterdir()] == [name]
    assert apt_sources.files_with("http://192.0.2.1/cuda/dists/x") == [str(sources / "sources" / name)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.list", "# deb http://192.0.2.1/cuda /\ndeb-src http://192.0.2.1/cuda /\ndeb http://192.0.2.1/cuda-old /\n"),
        ("a.sources", "Types: deb\nURIs: http://192.0.2.1/cuda\nSuites: /\nEnabled: no\n"),
        ("a.sources", "Types: deb-src\nURIs: http://192.0.2.1/cuda\nSuites: /\n"),
        ("a.list.save", "deb http://192.0.2.1/cuda /\n"),
    ],
)
def test_a_source_that_is_off_or_another_is_none(sources: Path, name: str, text: str) -> None:
    (sources / "sources" / name).write_text(text)
    apt_sources.add_repository(repository())
    assert (sources / "sources/cuda.sources").exists()


class Box:
    """A box by what apt prints: the first words of a command that match, and all commands that were run."""

    def __init__(self, **printed: str) -> None:
        self.printed = printed
        self.ran: list[str] = []

    def __call__(self, arguments: list[str], env: object = None) -> str:
        command = " ".join(item for item in arguments if not item.startswith("-") and "=" not in item)
        word = "simulate" if "--simulate" in arguments else command.split()[1] if command.startswith("apt") else command
        self.ran.append(word if word != "apt-get" else command)
        said = self.printed.get(word, "")
        if said.startswith("E: "):
            raise shell.Ended(arguments, 100, said)
        return said


SIMULATED = "Inst cuda-toolkit-13-0 (13.0 x [amd64])\n"
POLICY = "cuda-toolkit-13-0:\n  Version table:\n     13.0 500\n        500 http://192.0.2.1/cuda  Packages\n"
FOREIGN = "W: Failed to fetch http://192.0.2.9/x/InRelease  Could not connect\n"
NEEDED = POLICY + "        500 http://192.0.2.9/y  Packages\n"
NO_KEY = "W: Failed to fetch http://192.0.2.1/cuda/InRelease  NO_PUBKEY 1\n"


@pytest.fixture
def install(sources: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Box]:
    def call(**printed: str) -> Box:
        box = Box(**{"simulate": SIMULATED, "policy": POLICY, **printed})
        monkeypatch.setattr(shell, "run", box)
        monkeypatch.setattr(holds, "RECORD", str(sources / "packages.json"))
        apt.install(["cuda-toolkit-13-0"], repository())
        return box

    return call


def test_a_toolkit_is_simulated_then_installed_and_written_down_as_ours(
    install: Callable[..., Box], sources: Path
) -> None:
    assert install().ran == ["dpkg", "update", "simulate", "policy", "install"]
    assert json.loads((sources / "packages.json").read_text())["installed"] == ["cuda-toolkit-13-0"]


def test_what_else_comes_is_written_down_apart(install: Callable[..., Box], sources: Path) -> None:
    more = "Inst g++ (12 x [amd64])\nInst gcc [11] (12 x [amd64])\n"
    install(simulate=SIMULATED + more)
    record = json.loads((sources / "packages.json").read_text())
    assert (record["installed"], record["added"], record["held"]) == (["cuda-toolkit-13-0"], ["g++"], [])


def test_what_replaces_an_owners_package_is_not_ours(install: Callable[..., Box], sources: Path) -> None:
    install(simulate="Inst cuda-toolkit-13-0 [12.9] (13.0 x [amd64])\n")
    assert not (sources / "packages.json").exists()


@pytest.mark.parametrize(
    ("printed", "cause"),
    [
        ({"update": NO_KEY}, r"lists of http://192\.0\.2\.1/cuda: "),
        ({"update": FOREIGN, "policy": NEEDED}, "lists of http://192.0.2.9/x: "),
        ({"update": FOREIGN, "simulate": "E: Unable to locate package"}, "lists of http://192.0.2.9/x: "),
        ({"update": "E: Could not get lock /var/lib/apt/lists/lock."}, "apt's lock"),
        ({"update": "E: Malformed entry 1 in list file /x.list (Suite)\nE: The list could not be read."}, "Malformed"),
        ({"simulate": SIMULATED + "Inst nvidia-driver-590 (590 x [amd64])\n"}, "NVIDIA driver"),
        ({"simulate": SIMULATED + "Remv mine [1]\n"}, "remove mine"),
        ({"policy": POLICY.replace("192.0.2.1", "192.0.2.8")}, "not from the CUDA repository"),
    ],
)  # fmt: skip
def test_what_is_not_in_order_is_refused_before_anything_is_installed(
    install: Callable[..., Box], sources: Path, printed: dict[str, str], cause: str
) -> None:
    with pytest.raises(Failure, match=cause):
        install(**printed)
    assert not (sources / "packages.json").exists()


@pytest.mark.parametrize("update", [FOREIGN, "E: The repository 'http://192.0.2.9/x Release' is not signed.\n"])
def test_a_foreign_repository_that_is_not_needed_is_told_of_only(
    install: Callable[..., Box], update: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert install(update=update).ran[-1] == "install"
    assert "http://192.0.2.9/x" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("E: Unable to locate package g++", "apt knows no package g++"),
        ("E: Unable to locate package g+\nE: Unable to locate package libnuma1", "apt knows no package g++, libnuma1"),
        ("E: Package 'libnuma1' has no installation candidate", "apt knows no package libnuma1"),
        ("E: Could not get lock /var/lib/dpkg/lock-frontend. It is held", "another program holds apt's lock"),
        ("E: write error - write (28: No space left on device)", "the disk is full"),
        (
            " a : Depends: b (>= 2) but 1 is to be installed\nE: Unable to correct problems",
            "apt cannot have a : Depends: b",
        ),
        ("E: something nobody has seen", "apt failed: E: something nobody has seen"),
    ],
)
def test_what_apt_says_becomes_a_cause_and_a_remedy(said: str, cause: str) -> None:
    ended = shell.Ended(["apt-get"], 100, f"Reading package lists...\n{said}")
    failure = apt_call.explain(ended, ["apt-get", "install", "g++", "libnuma1"])
    assert failure.cause.startswith(cause) and failure.remedy
