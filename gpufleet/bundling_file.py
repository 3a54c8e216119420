"""The one file of a bundle: a tar whose members and headers tell nothing of who made it."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path

from gpufleet.errors import ConfigError

FOLDER = "bundle"  # in which its files are unpacked


def packed(texts: Mapping[str, str]) -> bytes:
    """The tar.gz of these files. No user, no time, no name of the file on the disk is in it."""
    buffer = io.BytesIO()
    # `tarfile.open(mode="w:gz")` would write the file's name and the time into the header of gzip
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, text in texts.items():
            data = text.encode("utf-8", "replace")
            member = tarfile.TarInfo(f"{FOLDER}/{name}")
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def write(path: Path, data: bytes) -> None:
    """Write it whole or not at all, for its owner's eyes only. Raises ConfigError: it is there already, or cannot."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        try:
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as handle:
                handle.write(data)
            os.link(aside, path)  # unlike a rename it never replaces what is there
        finally:
            aside.unlink(missing_ok=True)
    except FileExistsError:
        raise ConfigError([f"-o {path} is there already: give another name"]) from None
    except OSError as error:
        raise ConfigError([f"-o {path}: {error.strerror}; give a file in a folder that can be written"]) from None
