"""What is installed below /opt/gpufleet: the releases of each instance and how they drifted, runtimes, models."""

from __future__ import annotations

import json
import os
import re
import time

from hostkit import sha, state
from hostkit.files import COMPLETE, UNITS
from hostkit.files import ROOT as HOME
from hostkit.roots import Roots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

MANIFEST = "manifest.json"
MOST_BYTES = 1 << 20  # of one file: those we render have a few thousand
_DIGEST = re.compile("[0-9a-f]{16}")
# Units of ours that are no instances: gpufleet-resume.service, gpufleet-host.service.
NO_INSTANCES = ("resume", "host")


def unit_name(instance: str) -> str:
    return f"gpufleet-{instance}.service"


def run(spec: dict[str, Any]) -> dict[str, Any]:
    """The releases of `instance` with the text of each file, as they are on the box now; nothing is changed.

    Returns {"current", "gated", "unit": text of the installed unit or None, "releases": {digest: {"files":
    {path: text}, "at": when it was staged}}}. A file that was edited there is given as it is, one that is gone is not
    in it.
    """
    return texts(Roots(), spec["instance"])


def texts(roots: Roots, name: str) -> dict[str, Any]:
    home = f"{HOME}/instances/{name}"
    known = state.load(roots.path(state.STATE))["instances"].get(name, {})
    found = [digest for digest in _visible(roots, home + "/releases") if _DIGEST.fullmatch(digest)]
    unit = _bytes(roots.path(f"{UNITS}/{unit_name(name)}"))
    return {
        "current": current_release(roots, home),
        "gated": known.get("gated"),
        "unit": None if unit is None else _text(unit),
        "releases": {digest: _release(roots.path(f"{home}/releases/{digest}")) for digest in found},
    }


def _release(directory: str) -> dict[str, Any]:
    files = {}
    for folder, folders, names in os.walk(directory):
        folders[:] = [each for each in folders if not os.path.islink(os.path.join(folder, each))]
        for name in names:
            path = os.path.join(folder, name)
            content = None if os.path.islink(path) else _bytes(path)
            if content is not None:
                files[os.path.relpath(path, directory)] = _text(content)
    staged = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(os.stat(directory).st_mtime))
    return {"files": files, "at": staged}


def _text(content: bytes) -> str:
    return content[:MOST_BYTES].decode("utf-8", "replace")


def instance_names(roots: Roots) -> list[str]:
    """Those with a directory, and those of which only a unit is left."""
    names = set(_visible(roots, HOME + "/instances"))
    units = (re.fullmatch(r"gpufleet-([A-Za-z0-9][A-Za-z0-9._-]*)\.service", name) for name in roots.names(UNITS))
    found = {unit.group(1) for unit in units if unit} - set(NO_INSTANCES)
    return sorted(names | found)


def read_instances(roots: Roots) -> dict[str, Any]:
    known = state.load(roots.path(state.STATE))["instances"]
    return {
        "instances": {name: {**_instance(roots, name), **_known(known.get(name, {}))} for name in instance_names(roots)}
    }


def _known(remembered: dict[str, Any]) -> dict[str, Any]:
    """The release that last passed its gate, its port, whether something has been changed since without a gate; the
    activation that is under way or was cut off, whether it is held, what earlier activations took, and which units of
    the owner's it took the place of."""
    port, activation, held = (remembered.get(key) for key in ("port", "activation", "held"))
    history = remembered.get("history")
    return {
        "gated": remembered.get("gated"),
        "stale": bool(remembered.get("stale")),
        "port": port if isinstance(port, int) else None,
        "activation": activation if isinstance(activation, dict) else None,
        "held": held if isinstance(held, dict) else None,
        "history": history if isinstance(history, list) else [],
        "replaced": _replaced(remembered),
    }


def _replaced(remembered: dict[str, Any]) -> dict[str, Any]:
    found = remembered.get("replaced")
    return found if isinstance(found, dict) else {}


def replaced_units(roots: Roots) -> list[str]:
    """The units of the owner's whose place some instance took."""
    known = state.load(roots.path(state.STATE))["instances"]
    return sorted({unit for remembered in known.values() for unit in _replaced(remembered)})


def read_stores(roots: Roots) -> dict[str, Any]:
    models = [
        (name, revision)
        for name in _visible(roots, HOME + "/models")
        for revision in _visible(roots, f"{HOME}/models/{name}")
    ]
    return {
        "runtimes": {name: _complete(roots, "runtimes/" + name) for name in _visible(roots, HOME + "/runtimes")},
        "models": {"/".join(model): _complete(roots, "models/" + "/".join(model)) for model in models},
    }


def _visible(roots: Roots, directory: str) -> list[str]:
    """Its directories; a name with a dot in front is being built or thrown away."""
    return [
        name
        for name in roots.names(directory)
        if not name.startswith(".") and os.path.isdir(roots.path(f"{directory}/{name}"))
    ]


def _complete(roots: Roots, directory: str) -> dict[str, Any]:
    """Whole by its mark; a link to a directory of the owner's has none, and counts while the model is there."""
    path = roots.path(f"{HOME}/{directory}")
    if os.path.islink(path):
        return {"complete": os.path.isfile(os.path.join(path, "config.json")), "link": os.readlink(path)}
    return {"complete": os.path.isfile(os.path.join(path, COMPLETE))}


def _instance(roots: Roots, name: str) -> dict[str, Any]:
    home = f"{HOME}/instances/{name}"
    current = current_release(roots, home)
    return {
        "current": current,
        "releases": [digest for digest in _visible(roots, home + "/releases") if _DIGEST.fullmatch(digest)],
        "drift": list(_drift(roots, name, home, current)) if current else [],
        "gpus": _cards(roots, home, current) if current else [],
    }


def _cards(roots: Roots, home: str, digest: str) -> list[str]:
    """UUIDs of the cards of a release, by its gate; none of one that serves on the CPU, or is older than gates."""
    content = _bytes(roots.path(f"{home}/gates/{digest}.json"))
    try:
        gpus = json.loads(content or b"{}").get("gpus") or []
        return [gpu["uuid"] for gpu in gpus]
    except (ValueError, AttributeError, KeyError, TypeError):
        return []


def current_release(roots: Roots, home: str) -> str | None:
    """The digest an instance's `current` leads to; None when the link is gone or leads nowhere."""
    try:
        digest = os.path.basename(os.readlink(roots.path(home + "/current")).rstrip("/"))
    except OSError:
        return None
    return digest if os.path.isdir(roots.path(f"{home}/releases/{digest}")) else None


def _drift(roots: Roots, name: str, home: str, digest: str) -> Iterator[str]:
    release = roots.path(f"{home}/releases/{digest}")
    manifest = _bytes(os.path.join(release, MANIFEST))
    if manifest is None:
        yield MANIFEST + ": missing"
    elif sha.of(manifest)[:16] != digest:
        # nothing it says of the other files can be trusted
        yield MANIFEST + ": modified"
    else:
        named = json.loads(manifest.decode())
        for path, sha256 in sorted(named["files"].items()):
            content = _bytes(os.path.join(release, path))
            if content is None:
                yield path + ": missing"
            elif sha.of(content) != sha256:
                yield path + ": modified"
        for path, target in sorted(named.get("links", {}).items()):
            link = os.path.join(release, path)
            if not os.path.lexists(link):
                yield path + ": missing"
            elif not os.path.islink(link) or os.readlink(link) != target:
                yield path + ": modified"
    unit = f"{UNITS}/{unit_name(name)}"
    if not os.path.lexists(roots.path(unit)):
        yield unit + ": missing"
    elif os.path.islink(roots.path(unit)) and os.readlink(roots.path(unit)) == os.devnull:
        yield unit + ": masked"
    elif os.path.islink(roots.path(unit)) or _bytes(roots.path(unit)) != _bytes(os.path.join(release, unit_name(name))):
        yield unit + ": modified"


def _bytes(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
