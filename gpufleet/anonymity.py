"""Facts without what tells one box, card or owner from another: fit to be kept as test data, or to be shown."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

_NO_UUID = "GPU-00000000-0000-0000-0000-000000000000"
_UUID = re.compile(r"\b(GPU|MIG)-[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\b")
_URL_HOST = re.compile(r"(?<=://)[^/\s]+")
# what an Xid's text says of the program
_PROGRAM = re.compile(r"\b(pid|name)=[^,]*")


def anonymous(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The same facts without what tells one box, card or owner from another: fit to be kept as test data.

    UUIDs of cards are numbered, the host is `box`, what programs and mirrors are called is gone, and so is who holds an
    instance or the fleet's lock. Bus ids and links stay, and so do the names of instances, runtimes and models.
    """
    clean = copy.deepcopy(dict(facts))
    known = [gpu["uuid"] for gpu in clean["gpus"] if gpu["uuid"]]
    uuids = {uuid: f"{_NO_UUID[:-12]}{number:012d}" for number, uuid in enumerate(known, 1)}
    for gpu in clean["gpus"]:
        gpu["uuid"] = uuids.get(gpu["uuid"])
        for process in gpu["processes"]:
            process.update(name=None, unit=None)
    for listener in clean["ports"].values():
        listener.update(command=None, unit=None)
    for package in clean["nvidia_packages"].values():
        package["origin"] = package["origin"] and _URL_HOST.sub("mirror.example", package["origin"])
    for instance in clean["instances"].values():
        if instance.get("gpus"):
            instance["gpus"] = [uuids.get(uuid, _NO_UUID) for uuid in instance["gpus"]]
        if instance.get("held"):
            instance["held"]["by"] = None
        if instance.get("replaced"):
            instance["replaced"] = {}
        if instance.get("activation"):
            instance["activation"].update(replaces=[], replaced={})
    if clean.get("units"):
        clean["units"] = {}
    if clean.get("lock"):
        clean["lock"] = None
    for event in clean["xid"]:
        event["last"] = _without_uuids(_PROGRAM.sub(r"\1=?", event["last"]), uuids)
    host = re.compile(rf"(?<![\w-]){re.escape(clean['hostname'])}(?![\w-])")
    for error in clean["errors"]:
        said = _without_uuids(_URL_HOST.sub("mirror.example", error["message"]), uuids)
        error["message"] = host.sub("box", said) if clean["hostname"] else said
    return {**clean, "hostname": "box", "machine_id": None}


def _without_uuids(text: str, uuids: Mapping[str, str]) -> str:
    return _UUID.sub(lambda found: uuids.get(found.group(0), _NO_UUID), text)
