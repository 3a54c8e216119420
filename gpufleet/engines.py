"""What each engine takes: the flags of its server and the variables of its own, from the tables in `files/engines`.

A table is made from the engine's own parser by files/engines/make.py, which documents the format. Plain text, not YAML:
every plan reads one, and 500 lines are read in about a millisecond this way, in 30 by a YAML reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Literal, cast

from gpufleet.catalogue import pages
from gpufleet.errors import ConfigError, nearest
from gpufleet.paths import product_files

Kind = Literal["switch", "value", "commas", "list", "json"]
KINDS = {"switch", "value", "commas", "list", "json"}


@dataclass(frozen=True)
class Flag:
    """One flag, its name without dashes.

    kind: `switch` (true or false), `value` (a text or a number), `commas` (a text, its parts joined by commas), `list`
    (one or more values) or `json` (a mapping). negatable: the engine also has `no-<name>`. choices: the only values it
    takes; none listed, any. names: the flag and its other long names.
    """

    name: str
    kind: Kind
    negatable: bool = False
    choices: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Engine:
    """One version of one engine. `flags`: by each long name, those with `no-` included; `variables`: its own."""

    name: str
    flags: Mapping[str, Flag]
    variables: frozenset[str]
    prefixes: frozenset[str]  # what its own variables begin with: VLLM_; LMDEPLOY_ and TM_

    def knows_flag(self, flag: str) -> bool:
        """Whether the server takes `--<flag>`, spelled with hyphens; `no-x` for a switch that has that form."""
        return flag in self.flags

    def flag(self, flag: str) -> Flag:
        """All that is known of a flag. Raises KeyError for one the engine does not know."""
        return self.flags[flag]

    def kind(self, flag: str) -> Kind:
        """What a flag takes. Raises KeyError for one the engine does not know."""
        return self.flags[flag].kind

    def nearest(self, flag: str) -> str | None:
        """The known flag that is spelled most like an unknown one, or None when none is near."""
        return _nearest(flag.lower().lstrip("-").replace("_", "-"), self.flags)

    def knows_variable(self, name: str) -> bool:
        """Whether a variable is one of the engine's own. Means something only for those with its prefix, see `owns`."""
        return name in self.variables

    def owns(self, name: str) -> bool:
        """Whether a variable has a prefix of the engine: such a one that it does not know has no effect."""
        return name.startswith(tuple(self.prefixes))

    def nearest_variable(self, name: str) -> str | None:
        """The known variable that is spelled most like an unknown one, or None when none is near."""
        return _nearest(name.upper(), self.variables)

    def with_extra(self, flags: Iterable[str] = (), variables: Iterable[str] = ()) -> Engine:
        """The engine of a build that knows more (fork, patch). `flags`: lines as in a table; a bare name is a value.

        Raises ConfigError for a line that cannot be read.
        """
        more = {name: flag for line in flags for name, flag in _entries(_read_flag(line, f"{self.name}, extra flags"))}
        return replace(self, flags={**self.flags, **more}, variables=self.variables | set(variables))


def load(name: str, flags: Iterable[str] = (), variables: Iterable[str] = (), folders: Iterable[Path] = ()) -> Engine:
    """The engine of that name (`vllm-0.27.1`), with the extra names of a fork or a patch.

    folders: where an owner has tables of his own; they win over the product's, the last most. Raises ConfigError with
    the nearest right name when there is no such table.
    """
    engine = _load(name, tuple(folders))
    flags, variables = tuple(flags), tuple(variables)
    return engine.with_extra(flags, variables) if flags or variables else engine


def who_knows(flag: str) -> list[str]:
    """The product's engines that know a flag: for saying whose it is when it was given to another."""
    return [name for name in sorted(_tables(())) if _load(name, ()).knows_flag(flag)]


def _tables(folders: tuple[Path, ...]) -> dict[str, Path]:
    """The tables by name."""
    return {page.stem: page for folder in (product_files() / "engines", *folders) for page in pages(folder, "*.txt")}


@cache
def _load(name: str, folders: tuple[Path, ...]) -> Engine:
    tables = _tables(folders)
    if name not in tables:
        raise ConfigError([f"unknown engine {name!r}{nearest(name, tables)}"])
    path = tables[name]
    where = f"{path.parent.name}/{path.name}"
    try:
        return parse(name, path.read_text(encoding="utf-8"), where)
    except (OSError, ValueError) as error:
        raise ConfigError([f"{where}: cannot be read: {error}"]) from None


def parse(name: str, text: str, where: str) -> Engine:
    """Reads a table. Raises ConfigError with the line that cannot be read."""
    flags: dict[str, Flag] = {}
    variables: set[str] = set()
    for line in text.splitlines():
        if line.startswith("$"):
            variables.add(line[1:].strip())
        elif line.strip() and not line.startswith("#"):
            flags.update(_entries(_read_flag(line, where)))
    prefixes = {f"{variable.partition('_')[0]}_" for variable in variables}
    return Engine(name, flags, frozenset(variables), frozenset(prefixes))


def _read_flag(line: str, where: str) -> Flag:
    """`name | kind | choices | other names`; only the name is a must."""
    name, kind, choices, others = [field.strip() for field in [*line.split("|"), "", "", ""][:4]]
    kind, _, negative = (kind or "value").partition("/")
    if kind not in KINDS or negative not in ("", "no") or (negative and kind != "switch") or line.count("|") > 3:
        raise ConfigError([f"{where}: {line!r} is no flag: write `name | kind | choices | other names`"])
    if not name or name.startswith("-") or " " in name:
        raise ConfigError([f"{where}: {line!r}: write the name of a flag without its dashes, in one word"])
    long = tuple(other for other in others.split() if not other.startswith("-"))
    return Flag(name, cast(Kind, kind), bool(negative), tuple(choices.split()), (name, *long))


def _entries(flag: Flag) -> Iterator[tuple[str, Flag]]:
    """Every name a flag can be given by."""
    for name in flag.names:
        yield name, flag
        if flag.negatable:
            yield f"no-{name}", flag


def _nearest(word: str, names: Iterable[str]) -> str | None:
    """The name itself when only its case, dashes or underscores were wrong; else the nearest by spelling."""
    candidates = sorted(names)
    if word in candidates:
        return word
    return next(iter(get_close_matches(word, candidates, n=1, cutoff=0.6)), None)
