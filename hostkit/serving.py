"""Whether instances serve now: asked of those that were switched, before the next boxes are. It changes nothing."""

from __future__ import annotations

import http.client
import os
import urllib.request

from hostkit import release, systemd
from hostkit.releases import current_release, unit_name
from hostkit.roots import Roots

ANSWER_SECONDS = 10
# No proxy: the instance is on this very box.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def run(spec: dict) -> dict:
    """For each of `instances`, {"name", "host", "port"}: does its service run, and its /health answer?

    Returns {"instances": {name: {"serves": bool, "why": "" or the reason, "current": digest or None}}}.
    """
    answers = {}
    for asked in spec["instances"]:
        name = asked["name"]
        why = why_not(unit_name(name), "http://{}:{}".format(asked["host"], asked["port"]))
        current = current_release(Roots(), os.path.join(release.INSTANCES, name))
        answers[name] = {"serves": not why, "why": why, "current": current}
    return {"instances": answers}


def why_not(unit: str, url: str) -> str:
    """Why an instance does not serve; empty when it does."""
    service = systemd.show(unit)
    if service["active"] != "active":
        return "{} is {} ({})".format(unit, service["active"], service["sub"])
    try:
        with OPENER.open(url + "/health", timeout=ANSWER_SECONDS):
            return ""
    except (OSError, http.client.HTTPException) as error:
        return "{}/health does not answer: {}".format(url, str(error) or repr(error))
