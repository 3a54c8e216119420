"""Whether instances serve now: asked of those that were switched, before the next boxes are. It changes nothing."""

from __future__ import annotations

import os

from hostkit import release, systemd
from hostkit.gate_http import Client
from hostkit.releases import current_release, unit_name
from hostkit.roots import Roots

ANSWER_SECONDS = 10


def run(spec: dict) -> dict:
    """For each of `instances`, {"name", "host", "port"}: does its service run, and its /health answer?

    Returns {"instances": {name: {"serves": bool, "why": "" or the reason, "current": digest or None}}}.
    """
    answers = {}
    for asked in spec["instances"]:
        name = asked["name"]
        why = why_not(unit_name(name), Client(asked["host"], asked["port"]))
        current = current_release(Roots(), os.path.join(release.INSTANCES, name))
        answers[name] = {"serves": not why, "why": why, "current": current}
    return {"instances": answers}


def why_not(unit: str, client: Client) -> str:
    """Why an instance does not serve; empty when it does."""
    service = systemd.show(unit)
    if service["active"] != "active":
        return "{} is {} ({})".format(unit, service["active"], service["sub"])
    said = client.health(ANSWER_SECONDS).said
    return "port {}: {}".format(client.port, said) if said else ""
