"""One real chat completion of each box, asked for as a client of the fleet would ask."""

from __future__ import annotations

import json
import urllib.request

from lab import state
from lab.errors import LabError
from lab.paths import Settings

PORT = 8000


def ask(settings: Settings, prompt: str) -> list[tuple[str, str]]:
    """(box, answer) of each box; raises LabError naming the first box that does not answer."""
    lab = state.load(settings)
    return [(box.name, completion(box.name, box.address, prompt)) for box in lab.boxes]


def completion(name: str, address: str, prompt: str) -> str:
    """The text a box answers with, whatever model it serves."""
    body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": 24, "temperature": 0}
    request = urllib.request.Request(
        f"http://{address}:{PORT}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(json.load(answer)["choices"][0]["message"]["content"])
    except (OSError, ValueError, KeyError) as error:
        raise LabError(f"{name} does not answer on port {PORT}: {error}", "Deploy to it: make demo") from error
