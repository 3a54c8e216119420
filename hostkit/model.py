"""A model in place: `models/<name>/<revision>`, complete or absent; fetched with hashes, or linked where it lies."""

from __future__ import annotations

import json
import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor

from hostkit import events, files, state
from hostkit.errors import Failure
from hostkit.fetch import fetch_file

MODELS = os.path.join(files.ROOT, "models")
CONNECTIONS = 4
PRIVATE = ("/tmp/", "/var/tmp/")  # the unit's PrivateTmp hides the box's


def run(spec: dict) -> dict:
    """Put `name`/`revision` in place, from `http` and `files` {relative path: {size, sha256}}, or a local `path`.

    + instances: names of those that serve it
    """
    directory = os.path.join(MODELS, spec["name"], spec["revision"])
    state.doubt(spec["instances"])
    if spec.get("path"):
        return link_local(spec, directory)
    if files.is_complete(directory):
        return {"path": directory}
    # Fetched into a directory beside it, and renamed when whole; its files survive an interruption.
    aside = directory + ".incoming"
    set_aside(directory, aside)
    wanted = spec["files"]
    total = sum(entry["size"] for entry in wanted.values())
    events.log("fetching {} ({} files, {:.1f} MiB)".format(spec["name"], len(wanted), total / 2**20))

    def one(item: tuple) -> None:
        relative, entry = item
        url = spec["http"].rstrip("/") + "/" + relative
        fetch_file(url, os.path.join(aside, relative), entry["sha256"], entry["size"])
        events.log("fetched {}".format(relative))

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(one, sorted(wanted.items())))
    files.complete(aside, {"name": spec["name"], "revision": spec["revision"], "files": wanted})
    os.rename(aside, directory)
    return {"path": directory}


def set_aside(directory: str, aside: str) -> None:
    """Make way for the whole model: what a lost mark makes doubtful is looked through again, file by file."""
    if os.path.islink(directory):
        os.unlink(directory)
    elif os.path.isdir(directory):
        if os.path.isdir(aside):
            shutil.rmtree(directory)
        else:
            os.rename(directory, aside)


def link_local(spec: dict, directory: str) -> dict:
    """Serve a model from where the owner has it, after a look at whether it is whole and readable."""
    source = spec["path"]
    if not os.path.isdir(source):
        raise Failure("there is no directory {}".format(source), "put the model there, or correct its path")
    real = os.path.realpath(source)
    if real.startswith(PRIVATE):
        raise Failure("{} is in a directory that services have their own of".format(source), "move the model")
    if real != source and real.startswith(("/home/", "/root/", "/run/user/")):
        raise Failure("{} lies in {}".format(source, real), "give that path in the model's page")
    for relative in ["config.json"] + shards(source):
        check_readable(os.path.join(source, relative))
    if os.path.isdir(directory) and not os.path.islink(directory):
        shutil.rmtree(directory)  # the same revision, fetched before it was said to lie elsewhere
    files.link(source, directory)
    return {"path": directory}


def shards(source: str) -> list:
    """The weight files an index names; without an index, every safetensors file that is there."""
    try:
        with open(os.path.join(source, "model.safetensors.index.json"), encoding="utf-8") as handle:
            return sorted(set(json.load(handle)["weight_map"].values()))
    except FileNotFoundError:
        pass
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Failure("{}/model.safetensors.index.json cannot be read: {!r}".format(source, error), "fetch it again")
    found = (
        sorted(name for name in os.listdir(source) if name.endswith(".safetensors")) if os.path.isdir(source) else []
    )
    if not found:
        raise Failure("{} holds no safetensors files".format(source), "put the model there, or correct its path")
    return found


def check_readable(path: str) -> None:
    """Raise Failure unless the services' user, who is nobody in particular, can read this file."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise Failure("{} is missing: {}".format(path, error.strerror), "fetch the model again, or correct its path")
    at = os.path.dirname(os.path.realpath(path))
    while at != "/":
        if not os.stat(at).st_mode & stat.S_IXOTH:
            raise Failure("{} is closed to the user gpufleet".format(at), "chmod o+x {}, or move the model".format(at))
        at = os.path.dirname(at)
    if not mode & stat.S_IROTH:
        raise Failure("{} is not readable by the user gpufleet".format(path), "chmod o+r {}".format(path))
