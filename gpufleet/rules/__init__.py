"""Rules: each known problem is one function with a code, checked on the plan before any box is touched."""

from __future__ import annotations

from gpufleet.rules import hardware, host, serving  # noqa: F401 - importing them registers their rules
from gpufleet.rules.base import Finding, check

__all__ = ["Finding", "check"]
