"""Whether a start that takes long is slow or stands still: processor time, disk, and new lines of the log."""

from __future__ import annotations

import os
import re
import time
from typing import Optional, Sequence

from hostkit.roots import Roots

PAGE = 4096
# Of one core: a process that only waits wakes up now and then.
BUSY_SHARE = 0.01
READ_BYTES = 1 << 20  # between two looks


class Life:
    """Signs of life of a unit, from one look to the next."""

    def __init__(self, roots: Optional[Roots] = None) -> None:
        self.roots = roots or Roots()
        self.looked = self.since = time.monotonic()
        self.cpu: Optional[float] = None
        self.read: Optional[int] = None
        self.seen: set[str] = set()

    def look(self, group: str, lines: Sequence[str]) -> float:
        """Seconds for which there has been no sign of life; 0 where the kernel does not tell of the group.

        + group: the unit's control group
        + lines: its last lines; those that repeat with other numbers (`No available shared memory broadcast block
          found in 60 seconds`) are not new
        """
        now = time.monotonic()
        cpu, read, said = self._cpu(group), self._read(group), {re.sub(r"\d+", "0", line) for line in lines}
        if self._moved(cpu, read, now - self.looked) or said - self.seen:
            self.since = now
        self.looked, self.cpu, self.read = now, cpu, read
        self.seen |= said
        return now - self.since

    def _moved(self, cpu: Optional[float], read: Optional[int], seconds: float) -> bool:
        if cpu is None or read is None or self.cpu is None or self.read is None:
            return True  # not known is no proof
        used, got = cpu - self.cpu, read - self.read
        # Less than before: a process ended, or the unit was started anew.
        return used < 0 or got < 0 or used > seconds * BUSY_SHARE or got >= READ_BYTES

    def _cpu(self, group: str) -> Optional[float]:
        """Seconds of processor time its processes have had, those that ended included."""
        if not group:
            return None
        found = self.roots.text_or_none("/sys/fs/cgroup" + group + "/cpu.stat")
        usage = re.search(r"^usage_usec (\d+)$", found or "", re.MULTILINE)
        if usage:
            return int(usage.group(1)) / 1e6
        older = self.roots.text_or_none("/sys/fs/cgroup/cpuacct" + group + "/cpuacct.usage")
        return int(older) / 1e9 if older and older.strip().isdigit() else None

    def _read(self, group: str) -> Optional[int]:
        """Bytes its processes have read, from disks and from what is mapped into memory."""
        pids = self._pids(group)
        if not pids:
            return None
        total = 0
        for pid in pids:
            told = self.roots.text_or_none("/proc/{}/io".format(pid))
            if told is None:
                continue  # it has just ended
            counts = dict(re.findall(r"^(\w+): (\d+)$", told, re.MULTILINE))
            total += int(counts.get("rchar", 0)) + int(counts.get("read_bytes", 0))
            # Field 12, counted from behind the name, which may hold spaces: page faults that had to read.
            stat = (self.roots.text_or_none("/proc/{}/stat".format(pid)) or "").rpartition(")")[2].split()
            total += int(stat[9]) * PAGE if len(stat) > 9 else 0
        return total

    def _pids(self, group: str) -> list[str]:
        for base in ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/cpuacct"):
            found = self.roots.text_or_none(os.path.join(base + group, "cgroup.procs")) if group else None
            if found is not None:
                return found.split()
        return []
