"""Another MTP head for a model: its file, and an index that names its tensors in the place of the model's own `mtp.*`.

vLLM reads every tensor of every file that the index names, and AWQ's loader reads the headers of all `*.safetensors`
of the folder, named or not (0.27.1: `safetensors_weights_iterator`, `_read_safetensors_metadata_in_dir`). So an index
alone is not enough: no `*.safetensors` of the folder keeps a tensor of the old head.

Nothing is written into a file that is there, which is a link to a store or to the owner's: what changes is written
aside and renamed. What it was stays beside it as `<file>.original`, a link that costs nothing. What is to be is
computed from the originals alone, so each step can be done again after it was cut off.
"""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from hostkit import events, files, head_shape, safetensors
from hostkit.errors import Failure
from hostkit.shard import without

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
ORIGINAL = ".original"
USUAL = "model-mtp.safetensors"
WEIGHTS = ".safetensors"
PREFIX = "mtp."


class Plan(NamedTuple):
    """+ name: the head's file in the folder
    + text: the new index; dropped: how many names of the old head it names no more
    + mixed: {file: its tensors of the old head}, which lie among others; gone: files that held only such
    """

    name: str
    text: bytes
    dropped: int
    mixed: dict
    gone: list


def replace(directory: str, head: str) -> dict[str, Any]:
    """Give the model in `directory` the MTP head in the file `head`; done twice, it changes nothing.

    Returns `file` (its name in the folder), `tensors` and `bytes` of the new head, `dropped` (how many names left the
    index) and `originals`. Raises Failure, with nothing changed, when the head is not one for this model.
    """
    tensors = safetensors.header(head)
    head_shape.check(tensors, _config(directory), head)
    plan = _plan(directory, head, tensors)
    _sweep(directory)
    for name in sorted(plan.mixed):
        _strip(directory, name, plan.mixed[name])
    _put(directory, plan.name, head)
    index = os.path.join(directory, INDEX)
    if not _holds(index, plan.text):
        _keep(index)
        files.write(index, plan.text)
    for name in plan.gone:
        _keep(os.path.join(directory, name))
        files.with_suppressed_unlink(os.path.join(directory, name))
    return {
        "file": plan.name,
        "tensors": len(tensors),
        "bytes": sum(map(_bytes, tensors.values())),
        "dropped": plan.dropped,
        "originals": sorted(name for name in os.listdir(directory) if name.endswith(ORIGINAL)),
    }


def overlay(source: str, directory: str, head: str) -> dict[str, Any]:
    """The same for a model that stays in its owner's folder `source`: `directory` has links to all that is there.

    The owner's folder is read and never written.
    """
    os.makedirs(directory, exist_ok=True)
    # An owner's own `….original` are no originals of this step.
    wanted = {name: os.path.join(source, name) for name in os.listdir(source) if not name.endswith(ORIGINAL)}
    if not _linked(directory, wanted, head):
        for name in os.listdir(directory):
            files.remove(os.path.join(directory, name))
        for name in sorted(wanted):
            os.symlink(wanted[name], os.path.join(directory, name))
    return replace(directory, head)


def _plan(directory: str, head: str, tensors: dict) -> Plan:
    shards = {name: safetensors.header(_original(directory, name)) for name in _shards(directory)}
    old, found = {}, _index(directory)
    for name, header in shards.items():
        own = [tensor for tensor in header if tensor.startswith(PREFIX)]
        if own:
            old[name] = own
    gone = [name for name in old if len(old[name]) == len(shards[name])]
    name = _name(head, shards, gone)
    if found is None:  # without an index every file is read
        found = {"weight_map": {tensor: shard for shard in sorted(shards) for tensor in sorted(shards[shard])}}
    stay = {tensor: shard for tensor, shard in found["weight_map"].items() if not tensor.startswith(PREFIX)}
    size = sum(map(_bytes, tensors.values()))
    for shard in sorted(set(stay.values())):
        if shard not in shards:
            raise Failure("{}/{} names {}, which is not there".format(directory, INDEX, shard), "fetch the model again")
        size += sum(_bytes(its) for tensor, its in shards[shard].items() if not tensor.startswith(PREFIX))
    # A count of parameters cannot be put right: that of packed tensors is nowhere.
    metadata = {key: value for key, value in found.get("metadata", {}).items() if key != "total_parameters"}
    index = {
        **found,
        "metadata": {**metadata, "total_size": size},
        "weight_map": {**stay, **dict.fromkeys(sorted(tensors), name)},
    }
    return Plan(
        name=name,
        text=(json.dumps(index, indent=2, ensure_ascii=False) + "\n").encode(),
        dropped=len(found["weight_map"]) - len(stay),
        mixed={shard: own for shard, own in old.items() if shard not in gone},
        gone=[shard for shard in gone if shard != name],
    )


def _shards(directory: str) -> list:
    """The weight files as they were before the first replacement."""
    names = {name[: -len(ORIGINAL)] if name.endswith(ORIGINAL) else name for name in os.listdir(directory)}
    return sorted(name for name in names if name.endswith(WEIGHTS))


def _name(head: str, shards: dict, gone: list) -> str:
    """The head's own name, unless weights that stay have it, or the engine would not read a file of that name."""
    own = os.path.basename(head)
    for name in (own, USUAL):
        if name.endswith(WEIGHTS) and not name.startswith("consolidated") and (name not in shards or name in gone):
            return name
    raise Failure("{} and {} are names of the model's own weights".format(own, USUAL), "give the head another name")


def _index(directory: str) -> Any:
    path = _original(directory, INDEX)
    try:
        with open(path, encoding="utf-8") as handle:
            found = json.load(handle)
        if not isinstance(found["weight_map"], dict) or not isinstance(found.get("metadata", {}), dict):
            raise ValueError("no weight_map")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Failure("{} cannot be read: {!r}".format(path, error), "fetch the model again")
    return found


def _config(directory: str) -> dict:
    path = os.path.join(directory, CONFIG)
    try:
        with open(path, encoding="utf-8") as handle:
            found = json.load(handle)
        if not isinstance(found, dict):
            raise ValueError("no mapping")
    except (OSError, ValueError, RecursionError) as error:
        raise Failure("{} cannot be read: {!r}".format(path, error), "fetch the model again")
    return found


def _original(directory: str, name: str) -> str:
    kept = os.path.join(directory, name + ORIGINAL)
    return kept if os.path.lexists(kept) else os.path.join(directory, name)


def _keep(path: str) -> None:
    """A second link to what is there now, unless an original was kept before."""
    kept = path + ORIGINAL
    if os.path.lexists(kept) or not os.path.lexists(path):
        return
    if os.path.islink(path):
        os.symlink(os.readlink(path), kept)
    else:
        os.link(path, kept)


def _put(directory: str, name: str, head: str) -> None:
    """Have the head under its name: a hard link, or a symbolic one from another file system."""
    path, temporary = os.path.join(directory, name), os.path.join(directory, ".gpufleet-head")
    if os.path.exists(path) and os.path.samefile(path, head):
        return
    _keep(path)
    try:
        os.link(os.path.realpath(head), temporary)
    except OSError:
        os.symlink(os.path.abspath(head), temporary)
    os.replace(temporary, path)


def _strip(directory: str, name: str, own: list) -> None:
    """Write the file anew without the old head's tensors."""
    path, part = os.path.join(directory, name), os.path.join(directory, name + ".part")
    _keep(path)
    original = path + ORIGINAL
    if os.path.exists(path) and not os.path.samefile(path, original) and not set(own) & set(safetensors.header(path)):
        return
    events.log("writing {} without the {} tensors of its own MTP head".format(name, len(own)))
    without(original, part, own)
    os.replace(part, path)


def _sweep(directory: str) -> None:
    """Take away what a run that was cut off has left of its own."""
    for name in os.listdir(directory):
        if (name.startswith(".gpufleet-") and name != files.COMPLETE) or name.endswith(WEIGHTS + ".part"):
            files.with_suppressed_unlink(os.path.join(directory, name))


def _linked(directory: str, wanted: dict, head: str) -> bool:
    """Whether the folder has all links that it needs, under their names or as originals, and no others."""
    paths = [os.path.join(directory, name) for name in os.listdir(directory)]
    found = {path: os.readlink(path) for path in paths if os.path.islink(path)}
    right = all(found.get(_original(directory, name)) == target for name, target in wanted.items())
    return right and set(found.values()) <= {*wanted.values(), os.path.abspath(head)}


def _holds(path: str, content: bytes) -> bool:
    try:
        with open(path, "rb") as handle:
            return handle.read() == content
    except OSError:
        return False


def _bytes(tensor: dict) -> int:
    begin, end = tensor["data_offsets"]
    return int(end - begin)
