"""What is built from source on a box: its name by content, its version, its variables."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from packaging.version import Version

from gpufleet.errors import ConfigError
from gpufleet.parts import Build
from gpufleet.patches import Series, read_series
from gpufleet.stacks import Stack, text_of
from gpufleet.toolkit import version
from gpufleet.wheelhouse.mirror import of_git

# Part of every digest: raise it when what a build does changes without any of its inputs changing.
RECIPE = "1"
HOW_MANY = ("MAX_JOBS", "NVCC_THREADS", "CMAKE_BUILD_PARALLEL_LEVEL")  # what comes out is the same with any of them

# 1980-01-02: a wheel is a zip, and a zip holds nothing before 1980 in any time zone.
TIME = 315619200


@dataclass(frozen=True)
class Building:
    """The build of a stack for one Python, one toolkit and some architectures.

    + toolkit: `13-0`; None on a box that has none, where it cannot be built
    + archs: `sm75`
    """

    stack: Stack
    build: Build
    python: str
    toolkit: str | None
    archs: tuple[str, ...]

    @cached_property
    def series(self) -> Series:
        """Raises PatchError when its folder is not in order."""
        return read_series(self.stack.files / "patches" / self.build.patches) if self.build.patches else Series()

    @cached_property
    def lock(self) -> str:
        """The text of the lock its environment is made of. Raises OSError when it is not there."""
        return text_of(self.lock_path)

    @property
    def lock_path(self) -> Path:
        path = self.stack.build_lock_path(self.python)
        assert path is not None
        return path

    @cached_property
    def name(self) -> str:
        """`<distribution>-<version>-<digest>`: the same for all boxes that would build the same."""
        digest = hashlib.sha256(repr((RECIPE, self.python, self.toolkit, self.archs)).encode())
        env = sorted(item for item in self.build.env.items() if item[0] not in HOW_MANY)
        inputs = repr((self.build.name, self.build.version, self.build.sha256, env))
        for part in (inputs, self.series.digest, self.lock):
            digest.update(hashlib.sha256(part.encode()).digest())
        return f"{self.build.name}-{self.build.version}-{digest.hexdigest()[:12]}"

    @property
    def version(self) -> str:
        """The version the wheel gets: with a local part that carries the series' digest."""
        local = Version(self.build.version).local
        return f"{Version(self.build.version).public}+{local + '.' if local else ''}gpufleet.{self.series.digest[:8]}"

    def environment(self, git_mirror: str | None) -> dict[str, str]:
        """The variables of the build on a box, but for MAX_JOBS, which the box reckons (hostkit.build).

        + git_mirror: `mirrors.git`: git takes each of the page's `fetches` from there
        Raises ConfigError for a folder of this machine, which no box has.
        """
        assert self.toolkit is not None
        cuda = f"/usr/local/cuda-{version(self.toolkit)}"
        found = {
            "CUDA_HOME": cuda,
            "CUDACXX": f"{cuda}/bin/nvcc",
            "LD_LIBRARY_PATH": f"{cuda}/lib64",
            "TORCH_CUDA_ARCH_LIST": ";".join(capability(arch) for arch in self.archs),
            "NVCC_THREADS": "1",  # each takes the memory of a job
            "SETUPTOOLS_SCM_PRETEND_VERSION": self.version,
            "SOURCE_DATE_EPOCH": str(TIME),
        }
        return found | self.instead(git_mirror) | self.build.env

    def instead(self, git_mirror: str | None) -> dict[str, str]:
        """What makes git ask the mirror, whoever calls it. Raises ConfigError for a folder of this machine."""
        if not git_mirror or not self.build.fetches:
            return {}
        if git_mirror.startswith("file:"):
            raise ConfigError(
                [
                    f"mirrors.git: {git_mirror} is a folder of the controller, but {self.stack.name} is built on a "
                    f"box, which fetches {len(self.build.fetches)} git repositories by itself: serve that folder by "
                    "http and name that address, or leave mirrors.git out"
                ]
            )
        found = {"GIT_CONFIG_COUNT": str(len(self.build.fetches))}
        for number, fetch in enumerate(self.build.fetches):
            found[f"GIT_CONFIG_KEY_{number}"] = f"url.{of_git(fetch.git, git_mirror)}.insteadOf"
            found[f"GIT_CONFIG_VALUE_{number}"] = fetch.git
        return found


def capability(arch: str) -> str:
    """`7.5` for `sm75`, `12.0` for `sm120`."""
    digits = arch.removeprefix("sm")
    return f"{digits[:-1]}.{digits[-1]}"
