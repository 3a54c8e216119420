"""How many compilers run at once on this box."""

from __future__ import annotations

import os


def here(mib_per_job: int) -> int:
    """As many as this process has hardware threads, and the box memory that is available now."""
    return jobs(available_mib(), len(os.sched_getaffinity(0)), mib_per_job)


def jobs(available_mib: int, threads: int, mib_per_job: int) -> int:
    """As many as there are hardware threads, each with its memory; one at least.

    By what is available and not by the total: a box that serves has less to spare than it has.
    """
    return max(1, min(threads, available_mib // mib_per_job))


def available_mib() -> int:
    """What programs can get without swapping: a compiler that swaps is slower than one fewer."""
    with open("/proc/meminfo", encoding="ascii") as handle:
        return next(int(line.split()[1]) for line in handle if line.startswith("MemAvailable:")) // 1024
