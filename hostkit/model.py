"""A model in place: `models/<name>/<directory>`, complete or absent; of the store's files, or linked where it lies."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat

from hostkit import events, files, head, safetensors, state, store
from hostkit.errors import Failure

MODELS = os.path.join(files.ROOT, "models")
INCOMING, GONE, HEAD = ".incoming", ".gone", ".head"  # after the name of what is being made, or thrown away
PRIVATE = ("/tmp/", "/var/tmp/")  # the unit's PrivateTmp hides the box's


def run(spec: dict) -> dict:
    """Put `name`/`directory` in place, of `files` {relative path: {size, sha256, filename}} in the box's store, or link
    it to a local `path`.

    + instances: names of those that serve it
    + head: another MTP head, {"file": relative path, "sha256", "filename"} in the store, or with "path" where it lies
    + drafting: names of instances that draft with the MTP head of a model of the owner's, which has to have one then
    Returns {"path"}. Raises Failure.
    """
    directory = os.path.join(MODELS, spec["name"], spec["directory"])
    state.doubt(spec["instances"])
    if spec.get("path") and not spec.get("head"):
        return link_local(spec, directory)
    if files.is_complete(directory) and not os.path.islink(directory):
        return {"path": directory}
    # Made beside it and renamed when whole. A service that reads what was there keeps the files it has open.
    aside = directory + INCOMING
    files.remove(aside)
    events.log("putting {} in place".format(spec["name"]))
    if spec.get("path"):
        check_local(spec["path"])
    else:
        for relative, entry in sorted(spec["files"].items()):
            take(entry, os.path.join(aside, relative))
    facts = {"name": spec["name"], "directory": spec["directory"], "files": spec["files"]}
    if spec.get("head"):
        facts["head"] = {**spec["head"], **replace_head(spec, aside)}
    files.complete(aside, facts)
    put_in_place(aside, directory)
    return {"path": directory}


def doubt(directory: str) -> bool:
    """Take the mark of a model's directory away: the next deploy looks at each of its files, and mends it.

    False where it has none: it is the owner's, or doubtful already.
    """
    if os.path.islink(directory) or not files.is_complete(directory):
        return False
    os.unlink(os.path.join(directory, files.COMPLETE))
    files.sync_directory(directory)
    return True


def doubt_those_with(path: str) -> list:
    """`doubt` each model that has this file, which was found to be damaged; returns their directories."""
    known, found = os.stat(path), []
    for name in os.listdir(MODELS):
        folder = os.path.join(MODELS, name)
        if name.startswith(".") or not os.path.isdir(folder):
            continue
        for directory in (os.path.join(folder, each) for each in os.listdir(folder)):
            if not os.path.islink(directory) and has(directory, known) and doubt(directory):
                events.log("{} is doubtful: the next deploy mends it".format(os.path.relpath(directory, MODELS)))
                found.append(directory)
    return found


def has(directory: str, known: os.stat_result) -> bool:
    paths = (os.path.join(at, name) for at, _, names in os.walk(directory) for name in names)
    return any(os.path.samestat(os.lstat(path), known) for path in paths)


def take(entry: dict, target: str) -> None:
    """Another name for a file of the store. Raises Failure when it is not there, or cannot have one."""
    wanted = {**entry, "place": store.MODELS}
    source = store.at(wanted)
    if not store.is_whole(source, entry["size"]):
        raise Failure(
            "{} is not in the store of this box".format(entry["filename"]), "deploy again: it is brought then"
        )
    os.makedirs(os.path.dirname(target), exist_ok=True)
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno == errno.EXDEV:
            raise Failure(
                "{} and {} are on two file systems".format(store.MODELS_ROOT, target),
                "mount the disk at {}, or make that a link to it, and not a folder in it".format(MODELS),
            )
        if error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
            raise Failure(
                "the file system of {} gives a file no second name ({})".format(MODELS, error.strerror),
                "use one with hard links, such as ext4 or xfs",
            )
        raise


def replace_head(spec: dict, aside: str) -> dict:
    """The step of hostkit.head, with the head under its own name: what it answers."""
    wanted, own = spec["head"], aside + HEAD
    path: str = wanted.get("path") or os.path.join(own, os.path.basename(wanted["file"]))
    files.remove(own)
    if wanted.get("path"):
        check_readable(path)
    else:
        take(wanted, path)
    events.log("replacing its MTP head")
    done = head.overlay(spec["path"], aside, path) if spec.get("path") else head.replace(aside, path)
    files.remove(own)
    return dict(done)


def put_in_place(aside: str, directory: str) -> None:
    """Give a whole directory its name; what had it goes."""
    gone = directory + GONE
    files.remove(gone)
    if os.path.islink(directory):
        os.unlink(directory)
    elif os.path.isdir(directory):
        os.rename(directory, gone)
    os.rename(aside, directory)
    files.sync_directory(os.path.dirname(directory))
    files.remove(gone)


def link_local(spec: dict, directory: str) -> dict:
    """Serve a model from where the owner has it, after a look at whether it is whole and readable."""
    source = spec["path"]
    check_local(source)
    if spec.get("drafting"):
        require_head(source, spec["drafting"])
    if os.path.isdir(directory) and not os.path.islink(directory):
        shutil.rmtree(directory)  # the same revision, fetched before it was said to lie elsewhere
    files.link(source, directory)
    return {"path": directory}


def check_local(source: str) -> None:
    """Raise Failure unless the model there is whole, and the services can read it."""
    if not os.path.isdir(source):
        raise Failure("there is no directory {}".format(source), "put the model there, or correct its path")
    real = os.path.realpath(source)
    if real.startswith(PRIVATE):
        raise Failure("{} is in a directory that services have their own of".format(source), "move the model")
    if real != source and real.startswith(("/home/", "/root/", "/run/user/")):
        raise Failure("{} lies in {}".format(source, real), "give that path in the model's page")
    for relative in ["config.json"] + shards(source):
        check_readable(os.path.join(source, relative))


def shards(source: str) -> list:
    """The weight files an index names; without an index, every safetensors file that is there."""
    try:
        with open(os.path.join(source, "model.safetensors.index.json"), encoding="utf-8") as handle:
            return sorted(set(json.load(handle)["weight_map"].values()))
    except FileNotFoundError:
        pass
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Failure("{}/model.safetensors.index.json cannot be read: {!r}".format(source, error), "fetch it again")
    found = (
        sorted(name for name in os.listdir(source) if name.endswith(".safetensors")) if os.path.isdir(source) else []
    )
    if not found:
        raise Failure("{} holds no safetensors files".format(source), "put the model there, or correct its path")
    return found


def require_head(source: str, drafting: list) -> None:
    """Raise Failure when no shard of the owner's has a tensor of an MTP head: no draft would ever be right."""
    index = os.path.join(source, "model.safetensors.index.json")
    if os.path.exists(index):
        with open(index, encoding="utf-8") as handle:
            names = set(json.load(handle)["weight_map"])
    else:
        names = {tensor for shard in shards(source) for tensor in safetensors.header(os.path.join(source, shard))}
    if not any(name.startswith(head.PREFIX) for name in names):
        raise Failure(
            "{} has no {}* tensors, with which {} would draft".format(source, head.PREFIX, ", ".join(drafting)),
            "put a checkpoint with them there, give the model's page an `mtp_head`, or set "
            'serve_args = {"speculative-config": None}',
        )


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
