"""The header of a safetensors file: its tensors by name, and whether the file is as long as they say.

The format (huggingface/safetensors, README): 8 bytes with the header's length, little-endian; the header, JSON; the
tensors' bytes, one after another without a hole.
"""

from __future__ import annotations

import json
import os
import stat
from typing import Any

from hostkit.errors import Failure

LENGTH = 8  # bytes of the header's length
LONGEST = 100_000_000  # bytes of a header; the library refuses longer ones
BITS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64),
    **{"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6},
}
AGAIN = "fetch it again"
SHOWN = 100  # characters of a name or number of the header that are shown: it may be made to fill the screen
MOST_DIMENSIONS = 100  # of a tensor; those of models have up to 5
LARGEST = 1 << 63  # bytes; a product of lengths that is more takes long to write down


def header(path: str) -> dict[str, Any]:
    """{tensor: {"dtype", "shape", "data_offsets"}} of a file, without `__metadata__`.

    Raises Failure for a file that is truncated, longer than its header says, or no safetensors file.
    """
    try:
        seen = os.stat(path)
        if not stat.S_ISREG(seen.st_mode):  # a pipe would be waited for
            raise ValueError("is no file")
        size = seen.st_size
        with open(path, "rb") as handle:
            length = header_length(handle.read(LENGTH), size)
            return parse(handle.read(length), size)
    except ValueError as error:
        raise Failure(f"{path} {error}", AGAIN)
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror}", "correct its path or its permissions")


def header_length(first: bytes, size: int) -> int:
    """Bytes of the header of a file of `size` bytes that begins with `first`. Raises ValueError, said of the file."""
    if size < LENGTH or len(first) < LENGTH:
        raise ValueError(f"is truncated: {size} bytes are no safetensors file")
    length = int.from_bytes(first[:LENGTH], "little")
    if length > LONGEST or first[LENGTH : LENGTH + 1] not in (b"", b"{"):
        raise ValueError("is no safetensors file, or damaged: its header cannot be found")
    if LENGTH + length > size:
        raise ValueError(f"is truncated: its header alone ends at byte {LENGTH + length}, and it has {size}")
    return length


def parse(text: bytes, size: int) -> dict[str, Any]:
    """The tensors of the header `text` of a file of `size` bytes. Raises ValueError, said of the file."""
    try:
        found = json.loads(text.decode())
        found.pop("__metadata__", None)
        tensors = sorted(found.items(), key=lambda item: (item[1]["data_offsets"][0], item[1]["data_offsets"][1]))
        at = 0
        for name, tensor in tensors:
            at = _end(name, tensor, at)
    except _Damaged:
        raise
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, OverflowError) as error:
        raise ValueError(f"is damaged: its header cannot be read ({brief(error)})")
    want = LENGTH + len(text) + at
    if size != want:
        raise ValueError(f"is {'truncated' if size < want else 'damaged'}: it has {size} bytes, its header says {want}")
    return dict(found)


def brief(value: object) -> str:
    """On one line, and not long, whatever a header has there."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except ValueError:  # a number of more digits than Python writes
        text = "a number beyond all bounds"
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


def quoted(value: object) -> str:
    """The same, with a text in quotes."""
    return brief(repr(value)) if isinstance(value, str) else brief(value)


class _Damaged(ValueError):
    pass


def _end(name: str, tensor: dict[str, Any], at: int) -> int:
    """Where a tensor ends that has to begin at `at`."""
    begin, end = tensor["data_offsets"]
    name, shape, numbers = brief(name), tensor["shape"], 1
    for length in shape:
        if type(length) is not int or length < 0 or numbers * length > LARGEST or len(shape) > MOST_DIMENSIONS:
            raise _Damaged(f"is damaged: tensor {name} has shape {brief(shape)}")
        numbers *= length
    bits = BITS.get(tensor["dtype"])
    if type(begin) is not int or type(end) is not int or begin != at or end < begin:
        raise _Damaged(f"is damaged: tensor {name} lies at {brief(begin)} to {brief(end)}, and has to begin at {at}")
    if end > LARGEST:
        raise _Damaged(f"is damaged: tensor {name} ends at {brief(end)}")
    if bits is not None and (numbers * bits + 7) // 8 != end - begin:
        raise _Damaged(f"is damaged: tensor {name} of {tensor['dtype']} {brief(shape)} cannot take {end - begin} bytes")
    return end
