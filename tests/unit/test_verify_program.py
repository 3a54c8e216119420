"""What is asked of a new runtime: versions, machine code, compiler, cards; and what is said of each that is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hostkit import verify, verify_program
from hostkit.verify_program import Wrong

TORCH_CU130 = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"]


@pytest.mark.parametrize(
    ("built", "arch", "runs"),
    [
        (TORCH_CU130, "sm75", True),
        (TORCH_CU130, "sm70", False),  # field problem 13
        (TORCH_CU130, "sm89", True),  # code for 8.6 runs on 8.9
        (TORCH_CU130, "sm121", True),
        (["sm_90"], "sm86", False),
        (["sm_86"], "sm80", False),
        (["compute_70"], "sm75", True),
        (["compute_90"], "sm75", False),
        (["sm_90a"], "sm90", True),
        (["sm_120a"], "sm121", False),
        ([], "sm75", False),
        (["nonsense"], "sm75", False),
    ],
)
def test_machine_code_for_a_card(built: list[str], arch: str, runs: bool) -> None:
    assert verify_program.covers(built, arch) is runs


@pytest.mark.parametrize(
    ("one", "other"), [("2026.07.22", "2026.7.22"), ("2.13.0+cu130", "2.13.0+CU130"), ("1.0+a-1", "1.0+a.1")]
)
def test_versions_that_are_written_in_two_ways(one: str, other: str) -> None:
    assert verify_program.plain_version(one) == verify_program.plain_version(other)


def test_other_versions_are_other_versions() -> None:
    said = ["0.6.16.post3", "0.6.16", "0.6.16.post1", "2.13.0", "2.13.0+cu130", "2.13.1"]
    assert len({verify_program.plain_version(version) for version in said}) == len(said)


class Torch:
    """Two cards that compute rightly unless told otherwise."""

    def __init__(self, cards: int = 2, cuda: str | None = "13.0", wrong: str = "") -> None:
        self.__version__ = "2.13.0"
        self.half = "half"
        self.version = SimpleNamespace(cuda=cuda)
        self._C = SimpleNamespace(_cuda_getArchFlags=lambda: " ".join(TORCH_CU130))
        self.cuda = SimpleNamespace(
            device_count=lambda: cards,
            get_device_name=lambda index: f"card {index}",
            get_device_capability=lambda index: (7, 5),
        )
        self.wrong = wrong

    def ones(self, *_: int, device: int, dtype: str) -> Any:
        ok = self.wrong != f"product {device}"

        class Square:
            def __matmul__(self, other: Any) -> Any:
                return self

            def __eq__(self, other: object) -> Any:
                return SimpleNamespace(all=lambda: ok)

        return Square()

    def arange(self, size: int, device: int) -> Any:
        owner = self

        class Row:
            def __init__(self, value: int, at: int) -> None:
                self.value, self.at = value, at

            def __add__(self, other: int) -> Any:
                return Row(self.value + other, self.at)

            def to(self, target: int) -> Any:
                return Row(self.value + (owner.wrong == f"copy {self.at} {target}"), target)

            def __eq__(self, other: Any) -> Any:
                return SimpleNamespace(all=lambda: (self.value, self.at) == (other.value, other.at))

        return Row(0, device)


def with_torch(monkeypatch: pytest.MonkeyPatch, torch: Torch) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]


def asked(**other: Any) -> dict[str, Any]:
    return {"versions": {}, "archs": [], "cuda": None, "gpus": 0, "toolkit": None, "lines": [], **other}


def test_cards_that_work(monkeypatch: pytest.MonkeyPatch) -> None:
    with_torch(monkeypatch, Torch())
    found = verify_program.answer(asked(archs=["sm75"], gpus=2))
    assert found["failures"] == []
    assert found["torch"] == {"version": "2.13.0", "cuda": "13.0", "arch_list": TORCH_CU130}
    assert [card["name"] for card in found["gpus"]] == ["card 0", "card 1"]


@pytest.mark.parametrize(
    ("torch", "arch", "words"),
    [
        (Torch(cards=1), "sm75", "torch sees 1 of 2 GPUs"),
        (Torch(wrong="product 1"), "sm75", r"a product on GPU 1 \(card 1\) is wrong"),
        (Torch(wrong="copy 1 0"), "sm75", "a copy from GPU 1 to GPU 0 arrives wrong"),
        (Torch(cuda=None), "sm75", "a build without CUDA"),
        (Torch(), "sm70", "no machine code for sm70"),
    ],
)
def test_cards_and_torch_that_do_not_do(monkeypatch: pytest.MonkeyPatch, torch: Torch, arch: str, words: str) -> None:
    with_torch(monkeypatch, torch)
    failures = verify_program.answer(asked(archs=[arch], gpus=2))["failures"]
    with pytest.raises(Wrong, match=words):
        raise Wrong(failures[0]["cause"], "")
    assert len(failures) == 1 and failures[0]["remedy"]


@pytest.mark.parametrize("cuda", ["13.0", None])
def test_torch_for_the_cuda_of_the_page(monkeypatch: pytest.MonkeyPatch, cuda: str | None) -> None:
    with_torch(monkeypatch, Torch(cuda=cuda))
    assert verify_program.answer(asked(cuda=cuda or "")) == {"cuda": cuda or "", "failures": []}


@pytest.mark.parametrize(
    ("cuda", "wanted", "words"),
    [
        ("12.8", "13.0", "torch 2.13.0 is a build for CUDA 12.8, the stack's page says for CUDA 13.0"),
        (None, "13.0", "torch 2.13.0 is a build without CUDA, the stack's page says for CUDA 13.0"),
        ("13.0", "", "torch 2.13.0 is a build for CUDA 13.0, the stack's page says without CUDA"),
    ],
)
def test_torch_for_another_cuda(monkeypatch: pytest.MonkeyPatch, cuda: str | None, wanted: str, words: str) -> None:
    with_torch(monkeypatch, Torch(cuda=cuda))
    (failure,) = verify_program.answer(asked(cuda=wanted))["failures"]
    assert (failure["check"], failure["cause"]) == ("cuda", words)
    assert "versions.torch" in failure["remedy"]


def test_a_box_without_gpus_is_asked_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it fails
    assert verify_program.answer(asked()) == {"failures": []}


def test_the_compiler_is_the_toolkits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = tmp_path / "bin/nvcc"
    nvcc.parent.mkdir()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(Wrong, match="does not run"):
        verify_program.compiler("13-0")
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.9, V12.9.86'\n")
    nvcc.chmod(0o755)
    assert verify_program.compiler("12-9") == "12.9"
    with pytest.raises(Wrong, match=r"is release 12\.9, not 13-0"):
        verify_program.compiler("13-0")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("CUDA error: no kernel image is available for execution on the device", "made for"),
        ("libnuma.so.1: cannot open shared object file: No such file or directory", "package"),
        ("something nobody has met", "page"),
    ],
)
def test_a_line_that_fails_is_told_with_what_others_did_about_it(said: str, words: str) -> None:
    text = f"raise RuntimeError({said!r})"
    (failure,) = verify_program.answer(asked(lines=["1 + 1", text]))["failures"]
    assert failure["cause"] == f"{text} fails with RuntimeError: {said}" and words in failure["remedy"]


def test_all_that_is_wrong_is_found_at_once() -> None:
    found = verify_program.answer(asked(versions={"absent": "1"}, lines=["raise SystemExit(3)", "assert 0", "1"]))
    assert [failure["check"] for failure in found["failures"]] == ["versions", "line 1", "line 2"]
    assert found["line 3"] == "1"


def test_the_program_is_handed_over_as_text(tmp_path: Path) -> None:
    command = verify.command("/tree", "question", "/variables")
    assert command[0] == "systemd-run" and command[-6:-2] == ["/tree/bin/python", "-X", "faulthandler", "-c"]
    program = command[-2]
    assert "$" not in program  # systemd would take it for a variable
    assert "hostkit import" not in program
    question = tmp_path / "question.json"
    question.write_text(json.dumps(asked(lines=["print('noise', end='')"])))
    done = subprocess.run([sys.executable, "-c", program, str(question)], capture_output=True, text=True, check=True)
    last = done.stdout.splitlines()[-1]
    assert json.loads(last.removeprefix(verify.MARK)) == {"failures": [], "line 1": "print('noise', end='')"}


def test_verification_is_confined_as_the_services_unit_is() -> None:
    unit = (Path(__file__).parents[2] / "files/templates/instance.service.j2").read_text()
    own = {"ProtectHome=yes"}  # the unit opens it for a model that lies in a home
    assert [line for line in verify.CONFINED if line not in unit.splitlines() and line not in own] == []
    confining = ("Protect", "Private", "Restrict", "NoNew", "Lock", "UMask", "LimitMEMLOCK")
    named = {line.split("=")[0] for line in unit.splitlines() if line.startswith(confining)} - {"Restart", "RestartSec"}
    assert named == {line.split("=")[0] for line in verify.CONFINED}
