"""gpufleet: bring boxes with older NVIDIA GPUs from bare Ubuntu/Debian to serving language models, and keep them there.

This package is the pure core: what the box is and what the owner wants go in, a plan and its findings come out.
"""

__version__ = "0.1.0"
