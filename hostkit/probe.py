"""One look at the box: everything a plan needs to know of it, in one process and one answer."""

from __future__ import annotations

import time

from hostkit import (
    blacklist,
    boot,
    clock,
    compilers,
    disks,
    driver,
    hardware,
    holds,
    host_state,
    iommu,
    kernel_log,
    listeners,
    lock,
    origins,
    packages,
    releases,
    resolver,
    services,
    system,
    toolkits,
    upgrades,
)
from hostkit.guard import Source, Tell, collect
from hostkit.roots import Roots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SCHEMA = 2
SECONDS = 5.0
# without persistence mode the driver wakes each card at the first call, a second or two for each
NVML_SECONDS = 20.0
# a name that takes longer does not resolve in any way that helps
RESOLVER_SECONDS = 2.0


def run(spec: dict[str, Any], roots: Roots | None = None, nvml_seconds: float = NVML_SECONDS) -> dict[str, Any]:
    """spec: {"packages": [names], "units": [names of others' units], "places": [folders where models may be wanted]}.

    A source that failed leaves what `_nothing` has, and is named in `errors`.
    """
    root = roots or Roots()
    answers, errors = collect(*_cards(root, nvml_seconds), _system(root, spec), _files(root, spec))
    errors += [
        {"source": name, "message": message} for name, answer in answers.items() for message in answer.pop("errors", [])
    ]
    facts = _nothing()
    services_and_units = answers.pop("services", {})
    states = services_and_units.get("services", {})
    facts["units"] = services_and_units.get("units", {})
    of_packages = answers.pop("origins", {}).get("origins", {})
    of_cards = answers.pop("nvml", {})
    for answer in answers.values():
        facts.update(answer)
    facts["driver"] = _driver(facts["driver"], of_cards.pop("driver", None))
    facts.update(of_cards)
    for name, package in facts["nvidia_packages"].items():
        package.update(of_packages.get(name, {}))
    for name, instance in facts["instances"].items():
        instance["service"] = states.get(name, services.UNKNOWN)
    facts["errors"] = errors
    return {"facts": facts}


def _cards(root: Roots, nvml_seconds: float) -> list[list[Source]]:
    """What asks a driver, where there is one: slow, and beside the rest."""
    found = []
    if driver.is_there(root):
        found.append([Source("nvml", lambda tell: _nvml(root, tell), nvml_seconds)])
    if driver.is_there(root) or root.kernel_log:
        found.append([Source("kernel_log", lambda tell: kernel_log.read(root, tell), SECONDS)])
    return found


def _system(root: Roots, spec: dict[str, Any]) -> list[Source]:
    """What asks a program or a file system that may hang; none is asked that has nothing to tell."""
    found = []
    if spec.get("units") or _may_have_instances(root):
        found.append(Source("services", lambda _: _services(root, spec.get("units") or []), SECONDS))
    return [
        *found,
        Source("origins", lambda _: origins.read(root), SECONDS),
        Source("listeners", lambda _: listeners.read(root), SECONDS),
        Source("resolver", lambda tell: resolver.read(root, tell), RESOLVER_SECONDS),
        Source("upgrades", lambda _: upgrades.read(root), SECONDS),
        Source("compilers", lambda tell: compilers.read(root, tell), SECONDS),
        Source("driver", lambda tell: driver.read(root, tell), SECONDS),
        Source("disks", lambda tell: disks.read(root, tell, spec.get("places") or []), SECONDS),
    ]


def _files(root: Roots, spec: dict[str, Any]) -> list[Source]:
    """What reads small files of the kernel, of dpkg and of our own."""
    return [
        Source("packages", lambda _: packages.read(root, spec.get("packages", [])), SECONDS),
        Source("apt", lambda _: {"apt": {**holds.read(root), "upgrades": blacklist.state(root)}}, SECONDS),
        Source("system", lambda _: system.read(root), SECONDS),
        Source("hardware", lambda _: hardware.read(root), SECONDS),
        Source("iommu", lambda _: iommu.read(root), SECONDS),
        Source("boot", lambda _: boot.read(root), SECONDS),
        Source("clock", lambda _: clock.read(root), SECONDS),
        Source("host", lambda _: host_state.read(root), SECONDS),
        Source("toolkits", lambda _: toolkits.read(root), SECONDS),
        Source("stores", lambda _: releases.read_stores(root), SECONDS),
        Source("lock", lambda _: {"lock": lock.read(root)}, SECONDS),
        Source("instances", lambda _: releases.read_instances(root), SECONDS),
    ]


def _services(root: Roots, asked: list[str]) -> dict[str, Any]:
    units = sorted({*asked, *releases.replaced_units(root)})
    return services.read(releases.instance_names(root), roots=root, units=units)


def _may_have_instances(root: Roots) -> bool:
    try:
        return bool(releases.instance_names(root))
    except OSError:  # which the source that reads them tells
        return True


def _nvml(root: Roots, tell: Tell) -> dict[str, Any]:
    from hostkit import nvml  # with ctypes, only where there are cards

    return nvml.read(root, tell)


def _driver(from_files: dict[str, Any] | None, of_cards: dict[str, Any] | None) -> dict[str, Any] | None:
    """What the running library says of itself comes before what its file is called."""
    if of_cards is None:
        return from_files
    known = from_files or {"version": "unknown", "cuda": None, "module": None, "flavour": None, "module_on_disk": None}
    return {**known, **{key: value for key, value in of_cards.items() if value is not None}}


def _nothing() -> dict[str, Any]:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {
        "schema": SCHEMA,
        "at": now,
        "hostname": "",
        "hostname_resolves": False,
        "machine_id": None,
        "os": {},
        "python": {},
        "cpu": {},
        "memory": {},
        "overcommit_memory": None,
        "swappiness": None,
        "hosts_entry": None,
        "host": None,
        "disks": {},
        "models_home": None,
        "places": {},
        "shm_mib": 0,
        "shm_free_mib": 0,
        "virtualization": None,
        "secure_boot": None,
        "clock": {"synchronized": None, "now": now},
        "iommu": {"enabled": False, "passthrough": None, "acs": None},
        "driver": None,
        "nouveau": False,
        "gpus": [],
        "links": {},
        "ancestors": {},
        "p2p_read": {},
        "p2p_write": {},
        "xid": [],
        "kernel_log": False,
        "packages": {},
        "holds": [],
        "nvidia_packages": {},
        "nvidia_installer": False,
        "cuda_compat": [],
        "unattended_upgrades": {"enabled": False, "blacklist": []},
        "apt": None,
        "display_manager": None,
        "compilers": dict.fromkeys(compilers.NAMES),
        "toolkits": {},
        "ports": {},
        "units": {},
        "instances": {},
        "runtimes": {},
        "models": {},
        "user": {"exists": False},
        "lock": None,
        "errors": [],
    }
