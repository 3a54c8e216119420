"""unattended-upgrades kept off driver, kernel and toolkit: a small file of apt's, always the same.

It is written whether unattended-upgrades is there or not: without it the file means nothing, and it may be installed
between two deploys. A package of its list is still upgraded by hand, with `apt-get upgrade`.
"""

from __future__ import annotations

from hostkit import events, files
from hostkit.roots import Roots

PATH = "/etc/apt/apt.conf.d/51gpufleet"  # after 50unattended-upgrades; lists of several files are joined
# Regular expressions for the beginnings of names; `libcu` or `libnv` alone would keep libcurl and libnvme back.
PATTERNS = [
    "nvidia-(?!container)",
    "libnvidia-(?!container)",
    "libcuda1",
    "libcudadebugger",
    "libnvcuvid",
    "libnvoptix",
    "libxnvctrl",
    "lib(egl|gl|gles|glx)[a-z0-9]*-nvidia",
    "xserver-xorg-video-nvidia",
    "firmware-nvidia",
    # the module is built for one kernel, or comes with it
    "linux-image-",
    "linux-headers-",
    "linux-modules-",
    "linux-objects-",
    "linux-signatures-",
    "cuda-",
    "nsight-",
    "gds-tools",
    "lib(cublas|cudart|cudla|cufft|cufile|cuinj|cuobj|cupti|curand|cusolver|cusparse|accinj)",
    "lib(npp[0-9cis-]|nvblas|nvfatbin|nvjitlink|nvjpeg|nvptxcompiler|nvrtc|nvtoolsext|nvvm)",
]
TEXT = (
    "// Written by gpufleet, and again when it is edited. An upgrade at night of what the services run on ends in\n"
    '// "Driver/library version mismatch". Another wish: host = {"hold_packages": False}, then a file of your own.\n'
    "Unattended-Upgrade::Package-Blacklist {\n" + "".join('    "%s";\n' % item for item in PATTERNS) + "};\n"
)


def state(roots: Roots) -> str:
    """`current`, `changed` or `missing`."""
    found = roots.bytes_or_none(PATH)
    return "missing" if found is None else "current" if found == TEXT.encode() else "changed"


def write() -> None:
    if state(Roots()) != "current":
        events.log("keep unattended-upgrades off the driver and the toolkit: " + PATH)
        files.write(PATH, TEXT.encode())


def remove() -> None:
    if state(Roots()) != "missing":
        events.log("remove " + PATH)
        files.with_suppressed_unlink(PATH)
