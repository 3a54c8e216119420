"""The box itself: what its owner set of cards, processor and kernel, applied now and again at each boot."""

from __future__ import annotations

import os
from functools import partial
from typing import Optional

from hostkit import events, host_before, host_cards, host_state, host_values, state
from hostkit.roots import Roots


def run(spec: dict, roots: Optional[Roots] = None) -> dict:
    """Apply what `spec` has, and see that it is applied at each boot; what it lacks is left as it is.

    spec: persistence_mode, power_limit {uuid: watts}, governor, overcommit_memory, swappiness, hosts_entry (true)
    Returns {"applied": {key: value}, "drift": [what was otherwise, a line each], "failed": [what could not be set, and
    why]}. A value that this box refuses is no failure of the verb: it is remembered, so that the next deploy does not
    try again, and tried anew at the next boot.
    """
    at = roots or Roots()
    applied, drift, failed = {}, [], {}
    for value in values(spec, at):
        was, why = host_values.settle(value, partial(host_before.note, value.key, wanted=value.wanted))
        if was not in (None, value.wanted):
            drift.append("{} was {}, {} is wanted".format(value.what, word(value, was), word(value, value.wanted)))
        if why is None:
            applied[value.key] = value.wanted
        else:
            failed[value.key] = {"wanted": wanted_of(spec, value.key), "why": why}
    lines = ["{}: {}".format(key, item["why"]) for key, item in sorted(failed.items())]
    for line in drift:
        events.log(line)
    for line in lines:
        events.log("not set: " + line)
    host_state.keep(spec, failed)
    if drift or failed:
        state.journal("host-settings", applied=applied, drift=drift, failed=lines)
    return {"applied": applied, "drift": drift, "failed": lines}


def values(spec: dict, roots: Roots) -> list:
    found = [host_values.of_hosts(roots, os.uname().nodename)] if spec.get("hosts_entry") else []
    found += [host_values.of_kernel(roots, name, spec[name]) for name in host_values.SYSCTLS if name in spec]
    if "governor" in spec:
        found.append(host_values.of_processor(roots, spec["governor"]))
    return found + host_cards.of_cards(spec)


def word(value: host_values.Value, of: object) -> str:
    if isinstance(of, bool):
        return (("missing", "a line") if value.key == "hosts_entry" else ("off", "on"))[of]
    return "{} W".format(of) if value.key.startswith("power_limit") else str(of)


def wanted_of(spec: dict, key: str) -> object:
    name, _, uuid = key.partition(".")
    return spec[name][uuid] if uuid and isinstance(spec[name], dict) else spec[name]
