"""Whether a checkpoint is what its page says, and its tensors what its config.json says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from gpufleet.architecture import Mtp
from gpufleet.checkpoint import tensors
from gpufleet.checks.facts import Facts, Problem
from gpufleet.models import Model

# Sizes on a page may be rounded; more than both of these is another checkpoint.
SHARE, LEAST_MIB = 0.01, 16
SIZES = ("weights_mib", "vision_mib")
# Which endings of tensors' names a kind of quantisation brings, any of them (AutoAWQ, GPTQModel, compressed-tensors,
# Qwen's and DeepSeek's FP8, ModelOpt: as their checkpoints have them and vLLM 0.27.1 reads them).
BRINGS = {
    "awq": ("qweight",),
    "gptq": ("qweight",),
    "fp8": ("weight_scale_inv", "weight_scale"),
    "compressed-tensors": ("weight_packed", "weight_scale"),
    "nvfp4": ("weight_packed", "weight_scale", "weight_scale_2"),
}
ANEW = "`gpufleet models add` makes the page anew"
NOTED = "look at the log and at the share of accepted drafts; GF525 and GF521 are about that"
OTHER = "take the config.json that belongs to these shards"


def tensors_agree(facts: Facts) -> Iterator[Problem]:
    """The kind of quantisation that config.json names, and the tensors that such a checkpoint has."""
    if not facts.headers:
        return
    own = {name: header for name, header in facts.headers.items() if not tensors.is_other_input(name)}
    kinds = {name.rpartition(".")[2] for name in own} & {ending for brought in BRINGS.values() for ending in brought}
    brings = BRINGS.get(facts.method)
    if brings and not kinds & set(brings):
        cause = f"says {facts.method}, and no tensor is called {' or '.join(brings)}"
        yield Problem("error", "config.json", cause, OTHER)
    if facts.method == "none" and kinds:
        cause = f"names no quantisation, and there are tensors called {', '.join(sorted(kinds))}"
        yield Problem("error", "config.json", cause, OTHER)
    dtypes: Counter[str] = Counter()
    for header in own.values():
        dtypes[header["dtype"]] += tensors.size(header)
    if facts.method == "none" and dtypes.most_common(1)[0][0] == "F32" and _dtype(facts) != "float32":
        cause = f"says {_dtype(facts) or 'no dtype'}, and its tensors are of float32: twice as much to load"
        yield Problem("warning", "config.json", cause, "look for a checkpoint in 16 bits")


def _dtype(facts: Facts) -> str:
    text = facts.config.get("text_config")
    for config in (text if isinstance(text, Mapping) else {}, facts.config):
        for key in ("dtype", "torch_dtype"):
            if config.get(key):
                return str(config[key])
    return ""


def agrees(facts: Facts, model: Model, own_head: bool) -> Iterator[Problem]:
    """What the page's `architecture` says, held against what the checkpoint is.

    + own_head: whether the MTP head that is there is the one of the page; not so before it is replaced
    """
    shape, read = model.architecture, facts.read
    if shape is None or not facts.headers:
        return
    if isinstance(read, str):
        yield Problem(
            "warning", "", f"what the checkpoint is cannot be told: {read}", "compare it with its page by eye"
        )
        return
    theirs = read.architecture.model_dump()
    for key, ours in shape.model_dump().items():
        if key in SIZES:
            yield from _size(f"architecture.{key}", ours, theirs[key])
        elif key != "mtp":
            yield from _same(f"architecture.{key}", ours, theirs[key])
    if own_head:
        yield from _head(shape.mtp, read.architecture.mtp)


def notes(facts: Facts) -> Iterator[Problem]:
    """What is odd about the MTP head that is there."""
    if not isinstance(facts.read, str) and facts.read.architecture.mtp:
        yield from (Problem("warning", "", note, NOTED) for note in facts.read.notes)


def _same(key: str, ours: object, theirs: object) -> Iterator[Problem]:
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        for name, value in ours.items():
            yield from _same(f"{key}.{name}", value, theirs.get(name))
    elif ours != theirs:
        cause = f"the page's {key} is {_shown(ours)}, the checkpoint's is {_shown(theirs)}"
        yield Problem("error", "", cause, f"correct the page, or look whether this is the right checkpoint; {ANEW}")


def _shown(value: Any) -> str:
    return "not given" if value is None else "there" if isinstance(value, Mapping) else str(value)


def _size(key: str, ours: int, theirs: int) -> Iterator[Problem]:
    if abs(theirs - ours) > max(LEAST_MIB, SHARE * ours):
        cause = f"the page's {key} is {ours}, the tensors have {theirs} MiB"
        yield Problem("warning", "", cause, f"put {theirs} there, for the memory estimate; or {ANEW}")


def _head(ours: Mtp | None, theirs: Mtp | None) -> Iterator[Problem]:
    """The MTP head of the page, and the `mtp.*` tensors that are there."""
    count = theirs.tensors if theirs else 0
    if ours is None:
        if count:
            cause = f"there are {count} mtp.* tensors, and the page's architecture has no mtp"
            yield Problem("warning", "", cause, f"add it, to speculate with the model's own head; {ANEW}")
    elif theirs is None or count != ours.tensors:
        cause = f"the page's architecture.mtp.tensors is {ours.tensors}, there are {count}"
        remedy = "deploy it again if its head is to be replaced (`mtp_head`), else correct the page"
        yield Problem("error", "", cause, remedy if count else "take `mtp` out of the page, and speculation with it")
    else:
        yield from _same("architecture.mtp.layers", ours.layers, theirs.layers)
        yield from _same("architecture.mtp.quantised", ours.quantised, theirs.quantised)
        yield from _size("architecture.mtp.mib", ours.mib, theirs.mib)
