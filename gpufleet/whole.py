"""Whether a look at a box told enough to plan from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpufleet.errors import BoxError


def whole(name: str, facts: Mapping[str, Any]) -> None:
    """Raises BoxError when a source failed that nothing can be decided without."""
    # Without these nothing can be decided; an empty answer of `instances` is taken as one only when it did not fail.
    failed = {error["source"] for error in facts["errors"]}
    missing = [source for source in ("os", "python", "disks") if not facts.get(source)]
    missing += [source for source in ("instances", "services", "stores") if source in failed]
    if missing:
        said = "; ".join(f"{error['source']}: {error['message']}" for error in facts["errors"])
        raise BoxError(name, f"the probe could not read {', '.join(missing)} ({said})", "look at it on the box")
    for gpu in facts["gpus"]:
        if not gpu.get("compute_capability") or not gpu.get("uuid"):
            raise BoxError(
                name,
                f"GPU {gpu['index']} ({gpu.get('bus_id') or 'no address'}) does not answer",
                "look for Xid in the kernel log; a lost card needs a reboot, or to be reseated",
            )
