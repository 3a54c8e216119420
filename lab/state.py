"""lab.json: what a running lab is, for `lab status`, inventory/lab.py and the tests. Always written whole."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.paths import Settings, settings

SCHEMA = 1


@dataclass
class Box:
    name: str
    address: str
    topology: str | None = None
    pid: int | None = None  # the box's PID 1, as this machine numbers it, when the box was started
    nspawn: int | None = None


@dataclass
class Lab:
    bridge: str
    address: str
    network: str
    http: dict[str, Any]
    ssh_key: str
    known_hosts: str
    urls: dict[str, str]
    cuda_key_fingerprint: str
    model: dict[str, Any]
    boxes: list[Box] = field(default_factory=list)
    schema: int = SCHEMA

    def box(self, name: str) -> Box:
        for box in self.boxes:
            if box.name == name:
                return box
        known = ", ".join(box.name for box in self.boxes) or "none"
        raise LabError(f"the lab has no box {name}", f"Its boxes: {known}.")


def path(where: Settings) -> Path:
    return where.home / "lab.json"


def load(where: Settings | None = None) -> Lab:
    """The lab as recorded; raises LabError when there is none, or when the record cannot be read."""
    file = path(where or settings())
    try:
        data = json.loads(file.read_text())
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema {data['schema']}")
        return Lab(**{**data, "boxes": [Box(**box) for box in data["boxes"]]})
    except FileNotFoundError:
        raise LabError("the lab is not up", "Start it: python -m lab up 3") from None
    except PermissionError as error:
        raise LabError(f"{file} cannot be read: {error.strerror}", "The lab is root's: run this as root.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(f"{file} cannot be read: {error}", "Start anew: python -m lab down, then up.") from error


def save(where: Settings, lab: Lab) -> None:
    file = path(where)
    aside = file.with_suffix(f".{os.getpid()}")
    with aside.open("w") as stream:
        json.dump(asdict(lab), stream, indent=1)
        stream.write("\n")
        stream.flush()
        os.fsync(stream.fileno())
    aside.replace(file)
