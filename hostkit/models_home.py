"""The folder of the box, on another disk, that models lie in: /opt/gpufleet/models becomes a link to it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tempfile
from typing import List, Optional

from hostkit import disks, events, files, model, places, state
from hostkit.errors import Failure
from hostkit.roots import Roots


def run(spec: dict) -> dict:
    """Make /opt/gpufleet/models a link to `path`, where it is empty, absent or that link already.

    It is written down that the link is gpufleet's, so that `garbage` and `remove` see to what lies there. Nothing is
    moved, and nothing but empty folders is removed. Returns {"path"}. Raises Failure.
    """
    path = spec["path"]
    check(path)
    if os.path.islink(model.MODELS) and os.readlink(model.MODELS) == path:
        made = False
    else:
        strangers(path)
        clear()
        made = True
    os.makedirs(os.path.join(path, places.STORE), mode=0o755, exist_ok=True)
    files.write(places.record(), json.dumps({"path": path}).encode())
    if made:
        files.link(path, model.MODELS)
        events.log("models lie in {} now".format(path))
        state.journal("models-home", path=path)
    return {"path": path}


def root() -> str:
    """Where models lie, for what looks for garbage: no link, but where it leads, when it is one of gpufleet's."""
    return os.path.realpath(model.MODELS) if is_linked() else model.MODELS


def roots(home: Optional[str] = None) -> List[str]:
    """Where models lie, and the folder that they were in before the link to it went; see `remove`.

    + home: `host.models`, where the controller knows of one; it counts when there is a store of gpufleet's in it
    """
    found = [root()]
    if home and os.path.isdir(os.path.join(home, places.STORE)):
        found.append(os.path.realpath(home))
    return list(dict.fromkeys(found))


def is_linked() -> bool:
    """Whether /opt/gpufleet/models is a link that gpufleet made or took over."""
    return os.path.islink(model.MODELS) and os.readlink(model.MODELS) == places.recorded(Roots())


def check(path: str) -> None:
    """Raise Failure unless models can lie there."""
    roots = Roots()
    found = places.place(roots, path, disks.mounts(roots))
    if found["unmounted"]:
        raise Failure(
            "{} is in /etc/fstab and not mounted".format(found["unmounted"]),
            "mount {}, then deploy again".format(found["unmounted"]),
        )
    if not found["exists"]:
        raise Failure("there is no folder {}".format(path), "mkdir -p {}, on the disk you mean".format(path))
    if found["closed"]:
        raise Failure(
            "{} is closed to the user gpufleet".format(found["closed"]), "chmod o+x {}".format(found["closed"])
        )
    second_names(path)


def second_names(path: str) -> None:
    """Raise Failure where files cannot be written, or have no second name: models are made of such."""
    try:
        with tempfile.TemporaryDirectory(dir=path, prefix=".gpufleet-") as scratch:
            one = os.path.join(scratch, "one")
            with open(one, "wb"):
                os.link(one, os.path.join(scratch, "two"))
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
            raise Failure(
                "the file system of {} gives a file no second name ({})".format(path, error.strerror),
                "use one with hard links, such as ext4 or xfs",
            )
        raise Failure("{} cannot be written to: {}".format(path, error.strerror), "see to that, then deploy again")


def strangers(path: str) -> None:
    """Raise Failure where something lies that is not gpufleet's: nobody would know later which is whose."""
    other = places.foreign(path)
    if other:
        raise Failure(
            "{} holds what is not gpufleet's ({})".format(path, other),
            "give a folder of its own, such as {}/gpufleet".format(path),
        )


def clear() -> None:
    """Take an empty /opt/gpufleet/models away. Raises Failure for one in which something lies."""
    at = model.MODELS
    if not os.path.lexists(at):
        return
    if os.path.ismount(at):
        raise Failure("a disk is mounted at {}".format(at), "leave host.models out: models lie on that disk")
    if places.holds(at) or not os.path.isdir(at):
        lead = " (a link to {})".format(os.readlink(at)) if os.path.islink(at) else ""
        raise Failure(
            "{}{} is not empty, and nothing is moved".format(at, lead),
            "move what lies there, as docs/how-to/models-on-another-disk.md says, or leave host.models out",
        )
    if os.path.islink(at):
        return  # replaced by the new one, in one step
    for folder, _, _ in os.walk(at, topdown=False):
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(folder)
