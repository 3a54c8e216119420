"""Whether a model's files are whole: every shard readable, index and shards agreeing, sizes and hashes as pinned.

What the files say of themselves (config, tokenizer, chat template, the names and shapes of tensors) is given back for
the controller to judge. A damaged file makes the model doubtful, so that the next deploy mends it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Optional

from hostkit import events, files, model, safetensors
from hostkit.errors import Failure
from hostkit.head import ORIGINAL
from hostkit.pieces import PIECE

AT_ONCE = 4
TEXTS = ("config.json", "hf_quant_config.json", "generation_config.json", "tokenizer_config.json",
         "chat_template.jinja", "chat_template.json")  # fmt: skip
LARGEST_TEXT = 2 << 20  # bytes; a tokenizer_config.json with all its added tokens has some 100 KB
LARGEST_INDEX = 64 << 20  # bytes; that of 90,000 tensors has 8 MB
LARGEST_TOKENIZER = 128 << 20  # bytes; that of Qwen 3.5 has 20 MB
INDEX = "model.safetensors.index.json"
PERMISSIONS = "correct its permissions, or look at the disk"
MOST = 20  # templates for special purposes


def run(spec: dict) -> dict:
    """Look at `name`/`directory` of the models.

    + files: {relative: {size, sha256}} as pinned; + pieces: {relative: [sha256 of each 16 MiB]}
    + head: {"file", "sha256"} of an MTP head in place of the model's own; what that changed lies beside as `.original`
    + deep: whether each file is read as a whole and hashed

    Returns what `look` returns with `path`, `doubted`: whether the model's mark went. A model that is not there is a
    problem of no file.
    """
    path = os.path.join(model.MODELS, spec["name"], spec["directory"])
    if not os.path.isdir(path):
        told = Told()
        told.say("", "is not on this box", "deploy this box" if spec.get("files") else "put it there, then deploy")
        return {"path": path, "doubted": False, "problems": told.problems, "damaged": []}
    found = look(path, spec.get("files") or {}, spec.get("pieces") or {}, spec.get("head"), bool(spec.get("deep")))
    found["problems"] += closed(path)
    doubted = bool(found["damaged"]) and model.doubt(path)  # the next deploy looks at each of its files
    return {"path": path, "doubted": doubted, **found}


def closed(path: str) -> list:
    """The first file that the services' user cannot read, as a problem; none when it reads them all."""
    for name in sorted(os.listdir(path)):
        if name == "config.json" or name.endswith(".safetensors"):
            try:
                model.check_readable(os.path.join(path, name))
            except Failure as error:
                cause = error.cause.replace(os.path.join(path, name), "").strip()
                return [{"file": name, "cause": cause, "remedy": error.remedy}]
    return []


def look(
    path: str,
    pinned: dict,
    pieces: dict,
    head: Optional[dict] = None,
    deep: bool = False,
    say: Callable[[str], None] = events.log,
) -> dict:
    """{"problems", "damaged", "texts", "tensors", "tokenizer", "files", "bytes"} of a model's directory.

    + problems: [{"file", "cause", "remedy"}] of the files themselves; + damaged: the files that are not as they were
    + texts: what its small files say, by name; + tensors: see `pack`; + tokenizer: see `tokenizer`
    """
    told = Told()
    wanted = dict(pinned)
    if head:  # what it changed lies beside it as it was
        wanted = {kept(path, name): entry for name, entry in pinned.items()}
        wanted.update({placed(path, head): {"sha256": head["sha256"]}} if head.get("sha256") else {})
    check_pinned(path, wanted, told)
    there = {name: entry for name, entry in wanted.items() if name not in told.damaged}
    if deep and there:
        check_hashes(path, there, pieces, told, say)
    tensors = check_shards(path, told)
    small = texts(path, told)
    present = [name for name in os.listdir(path) if os.path.isfile(os.path.join(path, name))]
    return {
        "problems": told.problems,
        "damaged": sorted(told.damaged),
        "texts": small,
        "tensors": pack(tensors),
        "tokenizer": tokenizer(path),
        "files": len(present),
        "bytes": sum(os.path.getsize(os.path.join(path, name)) for name in present),
    }


def kept(path: str, name: str) -> str:
    """The file that is as pinned, when an MTP head has taken the place of another (hostkit.head)."""
    return name + ORIGINAL if os.path.lexists(os.path.join(path, name + ORIGINAL)) else name


def placed(path: str, head: dict) -> str:
    """The head's name in the directory: not always its own, and never with a folder (hostkit.head)."""
    made = files.mark(path).get("head") or {}
    return str(made.get("file") or os.path.basename(head["file"]))


class Told:
    """What was found, and which files are not as they were."""

    def __init__(self) -> None:
        self.problems: list = []
        self.damaged: set = set()

    def say(self, name: str, cause: str, remedy: str, damaged: bool = False) -> None:
        if damaged:
            self.damaged.add(name)
        self.problems.append({"file": name, "cause": cause, "remedy": remedy})


def check_pinned(path: str, wanted: dict, told: Told) -> None:
    """Every file that is pinned is there, with its size."""
    for name, entry in sorted(wanted.items()):
        try:
            size = os.path.getsize(os.path.join(path, name))
        except OSError as error:
            told.say(name, "is missing ({})".format(error.strerror), "deploy this box: it is brought again", True)
            continue
        if entry.get("size") is not None and size != entry["size"]:
            cause = "has {} bytes, {} are pinned".format(size, entry["size"])
            told.say(name, cause, "deploy this box: what is wrong of it is brought again", True)


def check_hashes(path: str, wanted: dict, pieces: dict, told: Told, say: Callable[[str], None]) -> None:
    """Read every pinned file as a whole; where its pieces are known, say which bytes differ."""
    total = sum(os.path.getsize(os.path.join(path, name)) for name in wanted)
    say("reading {} files, {:.1f} GiB".format(len(wanted), total / 2**30))

    def one(name: str) -> "tuple[str, str]":
        return name, wrong_bytes(os.path.join(path, name), wanted[name]["sha256"], pieces.get(name) or [])

    done = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for name, wrong in pool.map(one, sorted(wanted)):
            done += os.path.getsize(os.path.join(path, name))
            if len(wanted) > AT_ONCE:
                say("{:.1f} of {:.1f} GiB read".format(done / 2**30, total / 2**30))
            if wrong:
                told.say(name, wrong, "deploy this box: only what is wrong of it is brought again", True)


def wrong_bytes(path: str, sha256: str, pieces: list) -> str:
    """What is wrong of a file by its hash, in words; empty when nothing is."""
    whole, bad, index = hashlib.sha256(), [], 0
    try:
        with open(path, "rb") as handle:
            for block in iter(lambda: handle.read(PIECE), b""):
                whole.update(block)
                if pieces and (index >= len(pieces) or hashlib.sha256(block).hexdigest() != pieces[index]):
                    bad.append(index)
                index += 1
    except OSError as error:
        return "cannot be read to its end ({}): look at the disk".format(error.strerror)
    if whole.hexdigest() == sha256:
        return ""
    if bad and len(pieces) == index:
        first = bad[0] * PIECE
        return "is damaged: {} of {} pieces differ, the first from byte {} on".format(len(bad), index, first)
    return "is damaged: its sha256 is {}, {} is pinned".format(whole.hexdigest(), sha256)


def check_shards(path: str, told: Told) -> dict:
    """Read every header; hold index and shards against each other. Returns all tensors by name."""
    index = read_index(path, told)
    if index is None:
        names = sorted(name for name in os.listdir(path) if name.endswith(".safetensors"))
    else:
        names = sorted(set(index.values()))
    if not names and not any(name.endswith(".safetensors") for name in told.damaged):
        told.say("", "there are no safetensors files", "fetch the model again: gpufleet serves no other format")
    tensors: dict = {}
    for name in names:
        at = os.path.join(path, name)
        if not os.path.exists(at):
            if name not in told.damaged:
                lacking = sum(where == name for where in (index or {}).values())
                told.say(name, "is missing; the index has {} tensors in it".format(lacking), "fetch it again", True)
            continue
        try:
            header = safetensors.header(at)
        except Failure as error:
            if name not in told.damaged:
                told.say(name, error.cause.replace(at, "").strip(), error.remedy, True)
            continue
        if index is not None:
            agree(name, header, index, told)
        tensors.update(header)
    return tensors


def read_index(path: str, told: Told) -> Optional[dict]:
    """{tensor: shard}; None where there is no index, or it cannot be read."""
    at = os.path.join(path, INDEX)
    try:
        if os.path.lexists(at) and not os.path.isfile(at):  # a pipe would be waited for
            raise ValueError("it is no file")
        if os.path.exists(at) and os.path.getsize(at) > LARGEST_INDEX:
            raise ValueError("it has more than {} MiB".format(LARGEST_INDEX >> 20))
        with open(at, encoding="utf-8") as handle:
            found = json.load(handle)["weight_map"]
            if isinstance(found, dict) and all(is_inside(where) for where in found.values()):
                return dict(found)
            raise ValueError("weight_map is no mapping of tensors to files of this directory")
    except FileNotFoundError:
        return None
    except OSError as error:
        told.say(INDEX, "cannot be read: {}".format(error.strerror), PERMISSIONS, True)
        return None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        told.say(INDEX, "cannot be read: {}".format(error), "fetch it again", True)
        return None


def is_inside(name: object) -> bool:
    return isinstance(name, str) and name == os.path.basename(name) and name not in ("", ".", "..")


def agree(shard: str, header: dict, index: dict, told: Told) -> None:
    """Each tensor is where the index says, and the index names no tensor that its shard does not have."""
    said = {name for name, where in index.items() if where == shard}
    lacking, unnamed = sorted(said - set(header)), sorted(set(header) - said)
    if lacking:
        cause = "the index has {} in {}, which has not".format(several(lacking), shard)
        told.say(INDEX, cause, "take the index that belongs to these shards")
    stale = [name for name in unnamed if name in index]
    if stale:
        cause = "{} has {}, for which the index names another shard: stale".format(shard, several(stale))
        told.say(INDEX, cause, "take the index that belongs to these shards")
    nowhere = [name for name in unnamed if name not in index]
    if nowhere:
        cause = "{} has {}, which the index does not name".format(shard, several(nowhere))
        told.say(INDEX, cause, "take the index that belongs to these shards")


def several(names: list) -> str:
    return names[0] if len(names) == 1 else "{} and {} more tensors".format(names[0], len(names) - 1)


def pack(tensors: dict) -> str:
    """All tensors for the way to the controller, {name: [dtype, shape, bytes]}: 90,000 names are 8 MB, packed 0.5."""
    small = {
        name: [tensor["dtype"], tensor["shape"], tensor["data_offsets"][1] - tensor["data_offsets"][0]]
        for name, tensor in tensors.items()
    }
    return base64.b64encode(zlib.compress(json.dumps(small).encode())).decode()


def texts(path: str, told: Told) -> dict:
    """{name: text} of the small files; one that is too large, or no text, is a problem."""
    found = {}
    names = [name for name in TEXTS if os.path.isfile(os.path.join(path, name))]
    more = os.path.join(path, "chat_templates")
    if os.path.isdir(more):
        names += ["chat_templates/" + name for name in sorted(os.listdir(more))[:MOST] if name.endswith(".jinja")]
    for name in names:
        at = os.path.join(path, name)
        try:
            if os.path.getsize(at) > LARGEST_TEXT:
                raise ValueError("it has more than {} MiB".format(LARGEST_TEXT >> 20))
            with open(at, encoding="utf-8") as handle:
                found[name] = handle.read()
        except OSError as error:
            told.say(name, "cannot be read: {}".format(error.strerror), PERMISSIONS, True)
        except ValueError as error:
            told.say(name, "cannot be read: {}".format(error), "fetch it again", True)
    if "config.json" not in names and "config.json" not in told.damaged:
        told.say("config.json", "is missing", "fetch the model again, or correct its path", True)
    return found


def tokenizer(path: str) -> dict:
    """{"decoder": kinds of its steps, "model"} of tokenizer.json, which is too large to be sent; empty without one."""
    at = os.path.join(path, "tokenizer.json")
    try:
        if os.path.exists(at) and not os.path.isfile(at):  # a pipe would be waited for
            return {"error": "is no file"}
        if os.path.getsize(at) > LARGEST_TOKENIZER:
            return {"error": "has more than {} MiB".format(LARGEST_TOKENIZER >> 20)}
        with open(at, encoding="utf-8") as handle:
            found = json.load(handle)
        decoder = found.get("decoder") or {}
        steps = decoder.get("decoders") if decoder.get("type") == "Sequence" else [decoder]
        return {
            "decoder": [str(step.get("type")) for step in steps or [] if step],
            "model": str((found.get("model") or {}).get("type")),
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        return {"error": "cannot be read ({})".format(type(error).__name__)}
