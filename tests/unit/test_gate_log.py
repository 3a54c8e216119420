"""The log of a start: which line is the reason, and what it means."""

from __future__ import annotations

from pathlib import Path

import pytest

from hostkit import gate_log
from hostkit.errors import Failure

# A start of vLLM 0.27.1 that fails, shortened: the reason is said first, and what follows from it after.
FAILED = """\
INFO 11-30 02:00:00 [api_server.py:1] vLLM API server version 0.27.1
WARNING 11-30 02:00:01 [cuda.py:226] Failed to import: ImportError: libcuda.so.1: cannot open
(EngineCore pid=41) ERROR 11-30 02:00:09 [core.py:1100] EngineCore failed to start.
(EngineCore pid=41) ERROR 11-30 02:00:09 [core.py:1100] Traceback (most recent call last):
(EngineCore pid=41) ERROR 11-30 02:00:09 [core.py:1100]     raise ValueError(f"no room: {size}")
(EngineCore pid=41) ERROR 11-30 02:00:09 [core.py:1100] ValueError: No available memory for the cache blocks.
(APIServer pid=40) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
gpufleet-x.service: Main process exited, code=exited, status=1/FAILURE
""".splitlines()


def test_the_reason_is_the_first_error_and_not_the_last() -> None:
    assert gate_log.first_error(FAILED) == "ValueError: No available memory for the cache blocks."
    assert "gpu-memory-utilization" in gate_log.remedy("x", FAILED)


@pytest.mark.parametrize(
    ("lines", "reason", "remedy"),
    [
        (["x: error: argument --dtype: invalid choice"], "x: error: argument --dtype: invalid choice", "journalctl"),
        (["ERROR cannot go on", "bye"], "ERROR cannot go on", "journalctl"),
        (["one", "two", " "], "two", "journalctl"),
        ([], "it wrote nothing to the journal", "journalctl"),
        (
            ["RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"],
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
            "memory and swap",
        ),
        (
            [
                "1 validation error for ModelConfig",
                "ValidationError: 1 validation error for M",
                " Value error, no",
                "x",
            ],
            "ValidationError: 1 validation error for M Value error, no x",
            "journalctl",
        ),
        (
            ["x.service: Failed to locate executable /opt/x/bin/vllm: No such file or directory"],
            "x.service: Failed to locate executable /opt/x/bin/vllm: No such file or directory",
            "runtime is not where the unit expects it",
        ),
        (
            ["x.service: A process of this unit has been killed by the OOM killer."],
            "x.service: A process of this unit has been killed by the OOM killer.",
            "memory and swap",
        ),
        (["OSError: [Errno 98] Address already in use"], "OSError: [Errno 98] Address already in use", "another port"),
    ],
)
def test_each_kind_of_end_has_its_reason(lines: list[str], reason: str, remedy: str) -> None:
    assert gate_log.first_error(lines) == reason
    assert remedy in gate_log.remedy("x", lines)


def test_the_words_of_another_process_hint_at_nothing_when_the_reason_is_there() -> None:
    lines = ["ValueError: unknown quantization", "RuntimeError: Failed core proc(s): {}"]
    assert "memory" not in gate_log.remedy("x", lines)


def test_a_line_that_has_no_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless:
        def lines(self, *_: str) -> list[str]:
            return ["KeyError: " + "x" * 100_000]

    monkeypatch.setattr(gate_log, "Roots", Endless)
    (line,) = gate_log.since("x", ["a"], 0.0)
    assert len(line) == gate_log.LONGEST
    assert len(gate_log.first_error([line])) <= 300


def test_without_a_line_of_the_start_those_since_then_count(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nothing:
        def lines(self, *_: str) -> None:
            return None  # no journalctl

    monkeypatch.setattr(gate_log, "Roots", Nothing)
    monkeypatch.setattr(gate_log.systemd, "log_since", lambda unit, began, lines=400: [unit, str(began)][-lines:])
    assert list(gate_log.since("x", ["a"], 5.0)) == ["x", "5.0"]
    assert gate_log.latest("x", ["a"], 5.0, 1) == ["5.0"]


def test_a_real_journal_is_asked_by_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line, as a program on PATH gets it."""
    program = tmp_path / "journalctl"
    program.write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert list(gate_log.since("x", ["a", "b"], 0.0)) == [
        "--no-pager", "-q", "-o", "cat",
        "_SYSTEMD_INVOCATION_ID=a", "+", "INVOCATION_ID=a", "+", "_SYSTEMD_INVOCATION_ID=b", "+", "INVOCATION_ID=b",
    ]  # fmt: skip


def test_what_is_forbidden_is_told_also_of_an_older_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_log, "since", lambda *_: iter(["Truncating max_cudagraph_capture_size to 8"]))
    log = {"forbidden": [{"line": "Truncating", "means": "larger steps run without"}]}
    with pytest.raises(Failure, match="larger steps run without"):
        gate_log.check("x", [], 0.0, log, whole=False)
    assert gate_log.check("x", [], 0.0, {}, whole=True) == []
