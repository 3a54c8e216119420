"""The log of instances as it is written, until whoever reads it goes away."""

from __future__ import annotations

import json
import sys
import threading

from hostkit import unit_log

BEAT_SECONDS = 5.0


def run(spec: dict) -> dict:
    """Say the last `lines` of `instances`, then each that comes, as events `log`; ends when nobody listens.

    A silent service would keep this going after the controller has left, so now and then an event `progress` is sent,
    which nobody shows.
    """
    instances = list(spec["instances"])
    process = unit_log.started(instances, spec.get("lines") or 0)
    lock, over = threading.Lock(), threading.Event()

    def say(**event: object) -> None:
        try:
            with lock:
                sys.stdout.write(json.dumps(event, sort_keys=True) + "\n")
                sys.stdout.flush()
        except (OSError, ValueError):  # the reader has gone
            over.set()
            process.terminate()

    def beat() -> None:
        while not over.wait(BEAT_SECONDS):
            say(event="progress", beat=True)

    pulse = threading.Thread(target=beat, daemon=True)
    pulse.start()
    assert process.stdout is not None
    try:
        for text in unit_log.followed(process.stdout, len(instances) > 1):
            say(event="log", message=text)
    finally:
        over.set()
        process.terminate()
        process.wait()
        pulse.join()
    return {"followed": instances}
