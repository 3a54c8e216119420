"""How each instance of this box serves right now: whether it answers, what it runs on, how fast it is, how full."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any, Dict, Optional

from hostkit import metrics, release, state
from hostkit.gate_http import Client
from hostkit.releases import current_release, instance_names
from hostkit.roots import Roots

ANSWER_SECONDS = 3.0  # an engine that is busy still answers /health at once: another thread of it does
LIMIT_SECONDS = 9.0  # for all of it: three questions
SAMPLE_SECONDS = 1.0


def run(spec: dict) -> dict:
    """Ask every instance that has a release, all at once; nothing is changed, and nothing waits long.

    + seconds: between the two looks that the speed is told from; 0: no second look
    Returns {"instances": {name: {"health", "metrics", "port", "runtime", "model"}}}:
    + health: {"ok", "status": of HTTP or None, "seconds", "said": why it is not ok}; None when its port is not known
    + metrics: see hostkit.metrics, with the speed; None when it tells none
    + runtime: the name of its directory, model: `name/revision`, as the current release has them
    """
    sample = float(spec.get("seconds", SAMPLE_SECONDS))
    known = state.load()["instances"]
    found = {}
    for name in instance_names(Roots()):
        digest = current_release(Roots(), os.path.join(release.INSTANCES, name))
        if digest:
            found[name] = described(name, digest, known.get(name, {}))
    threads = [threading.Thread(target=ask, args=(item, sample), daemon=True) for item in found.values()]
    for thread in threads:
        thread.start()
    until = time.monotonic() + LIMIT_SECONDS + sample
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    # copies: a thread that is late may still write
    return {"instances": {name: {key: item[key] for key in item if key != "host"} for name, item in found.items()}}


def described(name: str, digest: str, known: dict) -> Dict[str, Any]:
    """Where an instance listens and what it runs on, by its gate and its manifest."""
    home = os.path.join(release.INSTANCES, name)
    gate = page(os.path.join(home, "gates", digest + ".json"))
    manifest = page(os.path.join(home, "releases", digest, "manifest.json"))
    links, asked = mapping(manifest.get("links")), mapping(gate.get("gate"))
    runtime = links.get("runtime") or gate.get("runtime") or manifest.get("runtime")
    model = links.get("model") or gate.get("model")
    port = gate.get("port") or known.get("port")
    late = {"ok": False, "status": None, "seconds": None, "said": "no answer within {:.0f} s".format(LIMIT_SECONDS)}
    return {
        "host": str(asked.get("host") or "127.0.0.1"),
        "port": port if isinstance(port, int) else None,
        "runtime": os.path.basename(str(runtime)) if runtime else None,
        "model": "/".join(str(model).rstrip("/").split("/")[-2:]) if model else None,
        "health": late if isinstance(port, int) else None,
        "metrics": None,
    }


def page(path: str) -> Dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as handle:
            return mapping(json.load(handle))
    except (OSError, ValueError):
        return {}


def mapping(value: object) -> Dict[str, Any]:
    return value if isinstance(value, dict) else {}


def ask(item: Dict[str, Any], sample: float) -> None:
    """Fill in health and metrics."""
    if item["port"] is None:
        return
    client = Client(item["host"], item["port"])
    item["health"] = answers(client)
    if not item["health"]["ok"]:
        return
    first, began = numbers(client), time.monotonic()
    if first is None:
        return
    item["metrics"] = dict(first)
    if sample > 0:
        time.sleep(sample)
        second = numbers(client)
        if second is not None:
            item["metrics"] = {**second, **metrics.speed(first, second, time.monotonic() - began)}


def answers(client: Client) -> Dict[str, Any]:
    began = time.monotonic()
    status, said = client.health(ANSWER_SECONDS)
    return {"ok": not said, "status": status, "seconds": round(time.monotonic() - began, 3), "said": said}


def numbers(client: Client) -> Optional[Dict[str, float]]:
    """What /metrics tells; None when it does not answer, or tells nothing that is known."""
    return metrics.read(client.metrics(ANSWER_SECONDS)) or None
