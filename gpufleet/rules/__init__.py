"""Rules: each known problem is one function with a code, checked on the plan before any box is touched.

Codes: GF1xx driver and cards, GF2xx toolkit, compilers and stacks, GF3xx links and groups, GF4xx memory, GF5xx flags
and variables, GF6xx the box itself.
"""

from __future__ import annotations

from gpufleet.rules import (  # noqa: F401 - importing them registers their rules
    allreduce,
    cards,
    driver,
    graphs,
    groups,
    host,
    host_memory,
    kinds,
    kv,
    links,
    memory,
    models_home,
    names,
    offloading,
    power,
    ranges,
    replacing,
    runner,
    serving,
    speculation,
    stack,
    toolkit,
    units,
)
from gpufleet.rules.base import Finding, check, silenced, silenced_by

__all__ = ["Finding", "check", "silenced", "silenced_by"]
