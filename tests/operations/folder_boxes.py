"""Boxes that are folders of this machine: the kit's own verbs run on them, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gpufleet.errors import BoxError
from gpufleet.models import Model
from gpufleet.settings import Settings

TOKEN = "a-token"
KIT = f"""
import contextlib, os, sys
from hostkit import __main__, files, model, serve, state, store
root, verb = sys.argv[1:]
store.ROOT, store.MODELS_ROOT, model.MODELS = root + "/store", root + "/models/.store", root + "/models"
files.STATE = root + "/state"
state.STATE, state.JOURNAL = root + "/state/state.json", root + "/state/journal.jsonl"
__main__.box_lock = lambda verb: contextlib.nullcontext()
os.sync = lambda: None
if verb == "serve":
    server = serve.Server("127.0.0.1", 0, {TOKEN!r})
    print(server.server_address[1], flush=True)
    server.serve_forever()
sys.exit(__main__.main([verb]))
"""


class FolderBox:
    """operations.deployment.Deployment of a box that is a folder. + strike: called before each verb"""

    def __init__(self, root: Path, model: Model, **settings: Any) -> None:
        self.root, self.said = root, list[str]()
        self.host = SimpleNamespace(name=root.name, log=self.said.append, noop=self.said.append)
        self.plan = SimpleNamespace(settings=Settings.model_validate(settings), instances=[], models=[model])
        self.changes = SimpleNamespace(models=[model])
        self.server: subprocess.Popen[str] | None = None
        self.received = 0
        self.strike: Callable[[str], None] = lambda verb: None

    @property
    def store(self) -> Path:
        return self.root / "models/.store"

    def directory(self, model: Model) -> Path:
        return self.root / "models" / model.name / model.directory

    def call(self, verb: str, spec: Mapping[str, Any], payload: Iterable[bytes] = (), **more: Any) -> dict[str, Any]:
        self.strike(verb)
        if verb == "share":
            return {"port": self.serve(), "token": TOKEN, "addresses": ["127.0.0.1"]}
        if verb == "unshare":
            self.end()
            return {}
        data = b"".join(payload)
        self.received += len(data)
        line = json.dumps(spec).encode() + b"\n"
        done = subprocess.run([*self.program, verb], input=line + data, capture_output=True, check=False)
        events = [json.loads(each) for each in done.stdout.splitlines()]
        for event in events:
            if event["event"] == "log":
                self.said.append(event["message"])
            elif event["event"] == "progress" and (told := more.get("progress")):
                told(event)
        if not events or events[-1]["event"] != "result":
            last = events[-1] if events else {"cause": done.stderr.decode(), "remedy": "look"}
            raise BoxError(self.host.name, last["cause"], last["remedy"])
        return dict(events[-1])

    @property
    def program(self) -> list[str]:
        return [sys.executable, "-c", KIT, str(self.root)]

    def serve(self) -> int:
        if self.server is None:
            self.server = subprocess.Popen([*self.program, "serve"], stdout=subprocess.PIPE, text=True)
            assert self.server.stdout is not None
            self.port = int(self.server.stdout.readline())
        return self.port

    def end(self) -> None:
        if self.server is not None and self.server.stdout is not None:
            self.server.kill()
            self.server.wait()
            self.server.stdout.close()
            self.server = None
