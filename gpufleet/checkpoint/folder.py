"""A checkpoint in a folder of this machine, to be served from a folder of the same path on the box."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from gpufleet.checkpoint import hashing
from gpufleet.errors import ConfigError
from gpufleet.models import File, Source
from gpufleet.schema import PATH, read

MOST = 10_000  # files; a model has some hundred


def _unreadable(error: OSError) -> NoReturn:
    raise ConfigError([f"{error.filename} cannot be read: {error.strerror}; mend its permissions"]) from error


class Folder:
    """Files of a folder, those of its folders too."""

    def __init__(self, given: Path) -> None:
        try:
            self.path = given.expanduser().absolute()
            there = self.path.is_dir()
        except (OSError, RuntimeError):  # a name that is too long; a user that is not there
            there = False
        if not there:
            raise ConfigError([f"there is no folder {given}: give one, `owner/name` of the hub, or an http address"])
        self.where = str(self.path)
        if not re.fullmatch(PATH, self.where):
            raise ConfigError([f"{self.where}: no page can have a path with such characters: rename the folder"])

    def sizes(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for folder, _, names in os.walk(self.path, onerror=_unreadable):
            for path in (Path(folder) / name for name in names):
                try:
                    seen = path.stat()
                except FileNotFoundError:  # a link that leads nowhere
                    continue
                except OSError as error:
                    _unreadable(error)
                if stat.S_ISREG(seen.st_mode):
                    found[path.relative_to(self.path).as_posix()] = seen.st_size
            if len(found) > MOST:
                raise ConfigError([f"{self.where} has more than {MOST} files: give the folder of the model alone"])
        return dict(sorted(found.items()))

    def part(self, name: str, start: int, end: int) -> bytes:
        try:
            with (self.path / name).open("rb") as handle:
                handle.seek(start)
                return handle.read(end - start)
        except OSError as error:
            remedy = "mend its permissions, or look at the disk"
            raise ConfigError([f"{self.path / name} cannot be read: {error.strerror}; {remedy}"]) from error

    def hashed(self, names: list[str], say: Callable[[str], None]) -> dict[str, File]:
        return hashing.by_reading(names, self.sizes(), self._stream, self.where, say)

    def _stream(self, name: str) -> Iterator[bytes]:
        start = 0
        while piece := self.part(name, start, start + hashing.PIECE):
            yield piece
            start += len(piece)

    def source(self, files: dict[str, File]) -> Source:
        given = {name: file.model_dump() for name, file in files.items()}
        return read(Source, {"path": str(self.path), "files": given}, "the page")

    def revision(self, files: dict[str, File]) -> str:
        return hashing.revision(files)

    @property
    def title(self) -> str:
        return self.path.name

    def name(self) -> str:
        return self.path.name
