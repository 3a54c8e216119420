"""A stack for GPUs on booted boxes, for the large test: what it is made of, and each box that gets it over SSH."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

from gpufleet.wheelhouse.items import Item
from gpufleet.wheelhouse.store import Store
from lab import state
from tests.command import REPOSITORY
from tests.lab.support import SmallLab
from tests.lab.test_runtimes import Workshop, ended

# NVIDIA's toolkit has the headers of its libraries, which FlashQLA's includes reach; the lab's has the compiler's only.
HEADERS = ("nvidia_cublas-", "nvidia_cusparse-", "nvidia_cusolver-")


class Clock:
    """Seconds of each thing done, printed as they come."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def note(self, what: str, began: float) -> None:
        self.seconds[what] = round(time.monotonic() - began, 1)
        print(f"{what}: {self.seconds[what]} s", flush=True)


class Box(Workshop):
    """A box that gets a runtime."""

    def __init__(self, lab: SmallLab, name: str) -> None:
        super().__init__(lab, name)
        found = state.load(lab.where)
        self.ssh = {
            "ssh_hostname": found.box(name).address,
            "ssh_user": "root",
            "ssh_key": found.ssh_key,
            "ssh_known_hosts_file": found.known_hosts,
        }

    def prepare(self, store: Store, items: list[Item]) -> None:
        """Give it what NVIDIA's toolkit and the system packages of the stack bring."""
        (deb,) = self.lab.where.cache.glob("cuda-*/debian12/x86_64/*.deb")
        self.put(f"/root/{deb.name}", deb.read_bytes())
        packages = "g++ python3-dev ninja-build libnuma1"
        self.lab.sh(self.name, f"apt-get -qq update && apt-get -qq install -y {packages} && dpkg -i /root/{deb.name}")
        stubs = "/usr/local/cuda-13.0/lib64/stubs"  # what NVIDIA's has to link the driver's library with
        self.lab.sh(self.name, f"mkdir -p {stubs} && gcc -shared -x c /dev/null -o {stubs}/libcuda.so")
        for item in items:
            if item.filename.startswith(HEADERS):
                with zipfile.ZipFile(store.path(item)) as wheel:
                    for entry in wheel.namelist():
                        if entry.startswith("nvidia/cu13/include/") and entry.endswith((".h", ".hpp")):
                            name = entry.removeprefix("nvidia/cu13/include/")
                            if not (self.root / "usr/local/cuda-13.0/include" / name).exists():
                                self.put(f"/usr/local/cuda-13.0/include/{name}", wheel.read(entry))

    def bring(self, paths: list[tuple[Item, Path]], pace: int | None = None) -> int:
        """Files into its store over SSH, as an operation does it; returns the bytes that left the controller.

        + pace: bytes per second at most
        """
        folder = self.lab.where.home / "by-hash" / self.name
        for item, path in paths:
            link = folder / item.sha256 / item.filename
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(path)
        items = [{"filename": item.filename, "sha256": item.sha256, "size": item.size} for item, _ in paths]
        done = subprocess.run(
            [sys.executable, "-m", "tests.lab.bringing"],
            input=json.dumps({"boxes": {self.name: self.ssh}, "items": items, "store": str(folder), "pace": pace}),
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        assert answer["failed"] == {}
        return int(answer["sent"])

    def install(self, asked: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """(the answer of the verb `runtime`, what was told before)."""
        last, told = ended(self.start("job", {"verb": "runtime", "spec": asked}))
        assert last["event"] == "result", (last, told)
        return last, told

    def copied(self, tree: Path, pace: int) -> None:
        """A ready runtime, plainly copied to the box by tar over ssh: what the bringing is compared with."""
        options = ["-i", self.ssh["ssh_key"], "-o", f"UserKnownHostsFile={self.ssh['ssh_known_hosts_file']}"]
        unpack = "mkdir /opt/copied && tar -C /opt/copied -xf - && sync -f /opt/copied"
        target = ["ssh", "-q", *options, f"root@{self.ssh['ssh_hostname']}", unpack]
        packing = subprocess.Popen(["tar", "-C", str(tree), "-cf", "-", "."], stdout=subprocess.PIPE)
        copying = subprocess.Popen(target, stdin=subprocess.PIPE)
        assert packing.stdout is not None and copying.stdin is not None
        began, done = time.monotonic(), 0
        while block := packing.stdout.read(1 << 20):
            copying.stdin.write(block)
            done += len(block)
            time.sleep(max(0.0, began + done / pace - time.monotonic()))
        copying.stdin.close()
        assert packing.wait() == 0 and copying.wait() == 0
        self.lab.sh(self.name, "rm -r /opt/copied")
