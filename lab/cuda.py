"""A real cuda-toolkit-13-0.deb, made of NVIDIA's own wheels, in a signed repository shaped like NVIDIA's.

So apt, the key and `nvcc` are real on a box; of the toolkit's libraries only the runtime is there.
"""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

from lab import apt, cache
from lab.paths import Settings
from lab.pip import download
from lab.shell import run

PACKAGE = "cuda-toolkit-13-0"
VERSION = "13.0.2-1"
PREFIX = "usr/local/cuda-13.0"
DISTRO = "debian12"
KEY = "3bf863cc.pub"  # the name NVIDIA's key has in its repositories
WHEELS = {
    "nvidia-cuda-nvcc==13.0.88": "56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03",
    "nvidia-nvvm==13.0.88": "c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0",
    "nvidia-cuda-crt==13.0.88": "2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4",
    "nvidia-cuda-runtime==13.0.96": "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
    "nvidia-cuda-cccl==13.0.85": "e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649",
}
LINKS = {"lib64": "lib", "lib/libcudart.so": "libcudart.so.13", "nvvm/lib64": "../lib"}
CONTROL = f"""\
Package: {PACKAGE}
Version: {VERSION}
Architecture: amd64
Maintainer: gpufleet lab <lab@lab.invalid>
Section: devel
Priority: optional
Depends: libc6
Description: CUDA compiler and runtime of NVIDIA's Python packages
 Repacked by the lab for its own boxes; not to be passed on.
"""


def repository(settings: Settings) -> Path:
    """The directory to serve as /cuda."""
    recipe = {
        "control": CONTROL, "wheels": WHEELS, "links": LINKS, "prefix": PREFIX, "distro": DISTRO,
        "key": apt.fingerprint(settings, "cuda"),
    }  # fmt: skip

    def build(directory: Path) -> None:
        flat = directory / DISTRO / "x86_64"
        flat.mkdir(parents=True)
        package(directory / "build", flat)
        shutil.rmtree(directory / "build")
        apt.publish(settings, flat, "cuda")
        (flat / KEY).write_text(apt.public_key(settings, "cuda"))

    return cache.once(settings.cache, "cuda", recipe, build)


def package(work: Path, destination: Path) -> None:
    requirements = [f"{wheel} --hash=sha256:{digest}" for wheel, digest in WHEELS.items()]
    download(requirements, work / "wheels")
    tree = work / "tree"
    for wheel in sorted((work / "wheels").glob("*.whl")):
        unpack(wheel, tree)
    for name, target in LINKS.items():
        (tree / PREFIX / name).symlink_to(target)
    control = tree / "DEBIAN" / "control"
    control.parent.mkdir()
    control.write_text(CONTROL)
    # hardly compressed: it crosses a bridge of this machine only, and is unpacked again and again
    name = f"{PACKAGE}_{VERSION}_amd64.deb"
    run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", tree, destination / name])


def unpack(wheel: Path, tree: Path) -> None:
    """nvidia/cu13/… goes to the toolkit's directory, licences to the package's documentation."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            target = place(entry.filename)
            if entry.is_dir() or target is None:
                continue
            path = tree / target
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(entry))
            path.chmod(0o755 if "/bin/" in target else 0o644)


def place(name: str) -> str | None:
    """Where a file of a wheel belongs on a box; None for those that only pip wants."""
    parts = Path(name).parts
    if parts[:2] == ("nvidia", "cu13") and ".." not in parts:
        return "/".join((PREFIX, *parts[2:]))
    if parts[0].endswith(".dist-info") and "licen" in name.lower():
        return f"usr/share/doc/{PACKAGE}/{parts[0].removesuffix('.dist-info')}-{parts[-1]}"
    return None
