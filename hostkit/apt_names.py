"""What NVIDIA's packages are called: those of the driver, those of the toolkit, and the ones that bring a driver along.

Names as Debian 12, Ubuntu 22.04 and 24.04 and NVIDIA's repository have them. `libcu` or `libnv` alone would be libcurl
and libnvme as well.
"""

from __future__ import annotations

import re

# A driver of the kernel or its libraries, or a kernel: a changed one is another driver at the next boot.
DRIVER = re.compile(
    r"^(nvidia-(?!cuda-|profiler|visual-profiler|container|docker|nsight|opencl-dev|openjdk)"
    r"|libnvidia-(?!container|ml-dev)|cuda-drivers|cuda-compat|libcuda1|libcudadebugger|libnvcuvid|libnvoptix"
    r"|lib(egl|gl|gles|glx)\w*-nvidia|libxnvctrl|xserver-xorg-video-nvidia|firmware-nvidia"
    r"|linux-(image|headers|modules|objects|signatures)-)"
)
# Part of a CUDA toolkit.
TOOLKIT = re.compile(
    r"^(cuda-(?!drivers|compat)|gds-tools|nsight-|nvidia-(cuda-|profiler|visual-profiler|nsight)"
    r"|lib(accinj|cublas|cudart|cudla|cufft|cufile|cuinj|cuobj|cupti|curand|cusolver|cusparse)"
    r"|lib(npp[\dcis-]|nvblas|nvfatbin|nvjitlink|nvjpeg|nvptxcompiler|nvrtc|nvtoolsext|nvvm))"
)
# They say toolkit and mean toolkit, libraries and the newest driver.
METAPACKAGE = re.compile(r"^cuda(-\d+-\d+)?$|^cuda-(runtime|demo-suite)(-|$)")


def brings_driver(name: str) -> bool:
    """Whether a package is a driver, or a metapackage that depends on one."""
    return bool(DRIVER.match(name) or METAPACKAGE.match(name))
