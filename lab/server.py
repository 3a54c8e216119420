"""Starts and finds the file server (lab/serve.py), which outlives the command that started it."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request

from lab import processes
from lab.errors import LabError
from lab.paths import REPOSITORY, Settings

MODULE = "lab.serve"


def running(settings: Settings) -> int | None:
    """The server of this lab, by its command line."""
    for process in processes.every():
        if MODULE in process.arguments and str(settings.www) in process.arguments:
            return process.pid
    return None


def start(settings: Settings) -> int:
    """Start the server unless it runs, and wait until it answers; returns its process id."""
    pid = running(settings)
    if pid is not None and answers(settings):
        return pid
    if pid is not None:
        processes.kill([pid])
    settings.www.mkdir(parents=True, exist_ok=True)
    log = settings.home / "http.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [
                sys.executable, "-m", MODULE, "--root", str(settings.www),
                "--bind", settings.address, "--port", str(settings.port),
            ],
            cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    until = time.monotonic() + 20
    while not answers(settings):
        if process.poll() is not None or time.monotonic() > until:
            said = log.read_text(errors="replace").strip().splitlines()[-1:]
            raise LabError(
                f"the file server does not answer on {settings.address}:{settings.port}: {''.join(said)}",
                "If the port is another's, name one in GPUFLEET_LAB_PORT.",
            )
        time.sleep(0.05)
    return process.pid


def answers(settings: Settings) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the bridge is never behind a proxy
    try:
        with opener.open(settings.url(""), timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def stop(settings: Settings) -> bool:
    pid = running(settings)
    if pid is not None:
        processes.kill([pid])
    return pid is not None
