"""A checkpoint in a folder of this machine, to be served from a folder of the same path on the box."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from gpufleet.checkpoint import hashing
from gpufleet.errors import ConfigError
from gpufleet.models import File, Source
from gpufleet.schema import read


class Folder:
    """Files of a folder, those of its folders too."""

    def __init__(self, given: Path) -> None:
        self.path = given.expanduser().absolute()
        self.where = str(self.path)
        if not self.path.is_dir():
            raise ConfigError([f"there is no folder {given}: give one, `owner/name` of the hub, or an http address"])

    def sizes(self) -> Mapping[str, int]:
        found = {}
        for path in sorted(self.path.rglob("*")):
            try:
                if path.is_file():
                    found[path.relative_to(self.path).as_posix()] = path.stat().st_size
            except OSError as error:
                raise ConfigError([f"{path} cannot be read: {error.strerror}"]) from error
        return found

    def part(self, name: str, start: int, end: int) -> bytes:
        try:
            with (self.path / name).open("rb") as handle:
                handle.seek(start)
                return handle.read(end - start)
        except OSError as error:
            raise ConfigError([f"{self.path / name} cannot be read: {error.strerror}"]) from error

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
