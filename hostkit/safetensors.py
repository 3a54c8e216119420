"""The header of a safetensors file: its tensors by name, and whether the file is as long as they say.

The format (huggingface/safetensors, README): 8 bytes with the header's length, little-endian; the header, JSON; the
tensors' bytes, one after another without a hole.
"""

from __future__ import annotations

import json
import os
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


def header(path: str) -> dict[str, Any]:
    """{tensor: {"dtype", "shape", "data_offsets"}} of a file, without `__metadata__`.

    Raises Failure for a file that is truncated, longer than its header says, or no safetensors file.
    """
    try:
        size = os.path.getsize(path)
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
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"is damaged: its header cannot be read ({error!r})")
    want = LENGTH + len(text) + at
    if size != want:
        raise ValueError(f"is {'truncated' if size < want else 'damaged'}: it has {size} bytes, its header says {want}")
    return dict(found)


class _Damaged(ValueError):
    pass


def _end(name: str, tensor: dict[str, Any], at: int) -> int:
    """Where a tensor ends that has to begin at `at`."""
    begin, end = tensor["data_offsets"]
    numbers = 1
    for length in tensor["shape"]:
        if type(length) is not int or length < 0:
            raise _Damaged(f"is damaged: tensor {name} has shape {tensor['shape']}")
        numbers *= length
    bits = BITS.get(tensor["dtype"])
    if type(begin) is not int or type(end) is not int or begin != at or end < begin:
        raise _Damaged(f"is damaged: tensor {name} lies at {begin} to {end}, and has to begin at {at}")
    if bits is not None and (numbers * bits + 7) // 8 != end - begin:
        raise _Damaged(
            f"is damaged: tensor {name} of {tensor['dtype']} {tensor['shape']} cannot take {end - begin} bytes"
        )
    return end
