"""How many compilers run at once: by hardware threads and by the memory that each takes."""

from __future__ import annotations

import os

import pytest

from hostkit import build, compile, parallel


@pytest.mark.parametrize(
    ("mib", "threads", "many"),
    [(15_800, 16, 3), (64_000, 16, 15), (64_000, 8, 8), (3_000, 8, 1), (0, 1, 1), (4096, 4, 1), (8192, 4, 2)],
)
def test_builds_by_memory_and_threads(mib: int, threads: int, many: int) -> None:
    assert parallel.jobs(mib, threads, build.MIB_PER_JOB) == many


@pytest.mark.parametrize(
    ("threads", "mib", "many"), [(8, 64_000, 8), (8, 8_000, 3), (16, 1_000, 1), (1, 64_000, 1), (32, 64_000, 31)]
)
def test_extensions_by_memory_and_threads(threads: int, mib: int, many: int) -> None:
    assert parallel.jobs(mib, threads, compile.MIB_PER_JOB) == many


def test_here_it_is_by_what_is_available_and_by_the_threads_this_process_may_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open("/proc/meminfo", encoding="ascii") as handle:
        total = next(int(line.split()[1]) for line in handle if line.startswith("MemTotal:")) // 1024
    assert 0 < parallel.available_mib() <= total
    monkeypatch.setattr(parallel, "available_mib", lambda: 9_000)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 5})
    assert [parallel.here(mib) for mib in (2048, 4096, 10_000)] == [3, 2, 1]
