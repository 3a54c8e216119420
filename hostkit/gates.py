"""What activates each release, kept beside the releases: its gate's question, its port, runtime, model and cards.

So a release can be gated by its own gate, whoever puts it back, and without a controller. It is no part of the
release's digest: a gate that asks another question restarts nothing.
"""

from __future__ import annotations

import json
import os
from typing import Optional

from hostkit import files, release

OF_ONE_RUN = ("instead_of", "replaces")


def path(instance: str, digest: str) -> str:
    return os.path.join(release.INSTANCES, instance, "gates", digest + ".json")


def keep(spec: dict) -> None:
    """Write the spec of `activate`, unless it is there as it is."""
    kept = {key: value for key, value in spec.items() if key not in OF_ONE_RUN}
    if read(spec["instance"], spec["digest"]) != kept:
        text = json.dumps(kept, indent=1, sort_keys=True) + "\n"
        files.write(path(spec["instance"], spec["digest"]), text.encode())


def read(instance: str, digest: Optional[str]) -> Optional[dict]:
    """None when there is none: of a release that an older version activated."""
    try:
        with open(path(instance, digest or ""), encoding="utf-8") as handle:
            found = json.load(handle)
    except (OSError, ValueError):
        return None
    whole = isinstance(found, dict) and {"instance", "digest", "runtime", "model", "port", "gate"} <= set(found)
    return found if whole else None


def prune(instance: str, digests: list) -> None:
    """Drop those of releases that are gone."""
    folder = os.path.join(release.INSTANCES, instance, "gates")
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        if name.endswith(".json") and name[: -len(".json")] not in digests:
            files.with_suppressed_unlink(os.path.join(folder, name))
