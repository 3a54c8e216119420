"""A safetensors file without some of its tensors, copied block by block; its format: hostkit.safetensors."""

from __future__ import annotations

import json
import os
from typing import Any, BinaryIO, Iterable

from hostkit import files, safetensors

BLOCK = 8 << 20  # bytes in memory at a time


def without(source: str, part: str, gone: Iterable[str]) -> None:
    """Write `source` without the tensors `gone` to `part`, in the order they have, whole when this returns.

    Raises Failure for a damaged source, and files.Full when there is no room.
    """
    safetensors.header(source)
    with open(source, "rb") as read:
        length = int.from_bytes(read.read(safetensors.LENGTH), "little")
        header = json.loads(read.read(length).decode())
        start = safetensors.LENGTH + length
        metadata = header.pop("__metadata__", None)
        drop, runs, at = set(gone), [], 0
        new: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
        for name in sorted(header, key=lambda name: header[name]["data_offsets"]):
            begin, end = header[name]["data_offsets"]
            if name not in drop:
                new[name] = {**header[name], "data_offsets": [at, at + end - begin]}
                runs.append((start + begin, end - begin))
                at += end - begin
        text = json.dumps(new, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)  # the tensors begin at a multiple of 8, as the library has it
        files.with_suppressed_unlink(part)
        with files.room(part, safetensors.LENGTH + len(text) + at), open(part, "wb") as write:
            write.write(len(text).to_bytes(safetensors.LENGTH, "little") + text)
            for offset, size in runs:
                read.seek(offset)
                _copy(read, write, size)
            write.flush()
            os.fchmod(write.fileno(), 0o644)
            os.fsync(write.fileno())


def _copy(read: BinaryIO, write: BinaryIO, size: int) -> None:
    while size:
        block = read.read(min(size, BLOCK))
        if not block:
            raise OSError("the file became shorter while it was read")
        write.write(block)
        size -= len(block)
