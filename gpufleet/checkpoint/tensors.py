"""Whose a tensor is, by its name: the language model's, the MTP head's, or that of images and sound. And sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

Header = Mapping[str, Any]  # {"dtype", "shape", "data_offsets"}
Headers = Mapping[str, Header]  # by tensor

# Parts of names, between dots, of what is not the language model: towers of images and sound, and what joins them on.
OTHER_INPUTS = re.compile(
    r"(^|\.)(visual|vision_\w+|vision|vpm|vit|resampler|image_newline|multi_modal_projector|mm_projector|projector|"
    r"embed_vision|audio_\w+|audio|apm|embed_audio)(\.|$)|^mlp1\."
)
MTP = re.compile(r"(^|\.)mtp(_\w+)?(\.|$)")
LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
# What stands for a weight that is not in 16 or 32 bits: packed words of AWQ, GPTQ and compressed-tensors, FP8, FP4.
NARROW = ("I8", "U8", "I32", "U32", "F4", "F6_E2M3", "F6_E3M2", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")


def size(header: Header) -> int:
    """Bytes of a tensor."""
    begin, end = header["data_offsets"]
    return int(end) - int(begin)


def total(headers: Iterable[Header]) -> int:
    return sum(size(header) for header in headers)


def mib(count: int) -> int:
    """MiB of so many bytes, to the nearest."""
    return (count + (1 << 19)) >> 20


def is_mtp(name: str, layers: int, heads: int) -> bool:
    """Whether a tensor is the MTP head's: it is called so, or it is a layer after the decoder's own.

    + layers: the decoder's own, `num_hidden_layers`
    + heads: `num_nextn_predict_layers`, as families say it that call the head's layers like the decoder's; else 0
    """
    if MTP.search(name):
        return True
    found = LAYER.search(name) if heads else None
    return found is not None and layers <= int(found[1]) < layers + heads


def is_other_input(name: str) -> bool:
    """Whether it is of images or sound: an engine that serves text only does not load it."""
    return OTHER_INPUTS.search(name) is not None


def module(name: str) -> str:
    """`mtp.fc` of `mtp.fc.weight` and of `mtp.fc.weight_scale_inv`."""
    return name.rpartition(".")[0] or name


def narrow_modules(headers: Headers) -> set[str]:
    """Modules whose weight is kept in fewer than 16 bits a number."""
    kept = ("weight", "qweight", "weight_packed", "gate_up_proj", "down_proj")
    return {
        module(name)
        for name, header in headers.items()
        if header["dtype"] in NARROW and (name.rpartition(".")[2] in kept or len(header["shape"]) >= 2)
    }


def wide_modules(headers: Headers) -> set[str]:
    """Modules with a matrix of 16 bits or more a number that quantising would have changed: projections and `fc`."""
    return {
        module(name)
        for name, header in headers.items()
        if name.endswith(("proj.weight", ".fc.weight", "eh_proj.weight")) and header["dtype"] not in NARROW
    }
