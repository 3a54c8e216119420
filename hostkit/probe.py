"""One look at the box: everything a plan needs to know of it, in one process and one answer."""

from __future__ import annotations

import time
from typing import Any

from hostkit import driver, hardware, listeners, nvml, packages, releases, services, system, toolkits
from hostkit.guard import Source, collect
from hostkit.roots import Roots

SCHEMA = 1
SECONDS = 5.0
# without persistence mode the driver wakes each card at the first call, a second or two for each
NVML_SECONDS = 20.0


def run(spec: dict[str, Any], roots: Roots | None = None, nvml_seconds: float = NVML_SECONDS) -> dict[str, Any]:
    """spec: {"packages": [names]}; a source that failed leaves what `_nothing` has, and is named in `errors`."""
    root = roots or Roots()
    answers, errors = collect(
        [
            Source("nvml", lambda: nvml.read(root), nvml_seconds),
            Source("services", lambda: services.read(releases.instance_names(root)), SECONDS),
            Source("listeners", lambda: listeners.read(root), SECONDS),
            Source("packages", lambda: packages.read(root, spec.get("packages", [])), SECONDS),
            Source("driver", lambda: driver.read(root), SECONDS),
            Source("system", lambda: system.read(root), SECONDS),
            Source("hardware", lambda: hardware.read(root), SECONDS),
            Source("disks", lambda: hardware.read_disks(root), SECONDS),
            Source("toolkits", lambda: toolkits.read(root), SECONDS),
            Source("stores", lambda: releases.read_stores(root), SECONDS),
            Source("instances", lambda: releases.read_instances(root), SECONDS),
        ]
    )
    facts = _nothing()
    states = answers.pop("services", {}).get("services", {})
    of_cards = answers.pop("nvml", {})
    errors += [{"source": "nvml", "message": message} for message in of_cards.pop("errors", [])]
    for answer in answers.values():
        facts.update(answer)
    facts.update(of_cards)  # after what the files say of the driver
    for name, instance in facts["instances"].items():
        instance["service"] = states.get(name, services.UNKNOWN)
    facts["errors"] = errors
    return {"facts": facts}


def _nothing() -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "hostname": "",
        "machine_id": None,
        "os": {},
        "python": {},
        "cpu": {},
        "memory": {},
        "disks": {},
        "shm_mib": 0,
        "virtualization": None,
        "driver": None,
        "gpus": [],
        "links": {},
        "p2p_read": {},
        "packages": {},
        "toolkits": {},
        "ports": {},
        "instances": {},
        "runtimes": {},
        "models": {},
        "user": {"exists": False},
        "errors": [],
    }
