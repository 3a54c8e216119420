"""Values with where each came from and what it overrode: laid on one another, weakest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class Given(NamedTuple):
    """A value, and the file, layer or computation that gave it."""

    source: str
    value: Any


class Values:
    """Mappings merge key by key, everything else replaces; `trace` has all that was given for each dotted key."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.trace: dict[str, list[Given]] = {}

    def lay(self, source: str, values: Mapping[str, Any]) -> None:
        """Lay `values` over what there is."""
        self._lay(self.values, source, values, "")

    def _lay(self, target: dict[str, Any], source: str, values: Mapping[str, Any], prefix: str) -> None:
        for key, value in values.items():
            dotted = f"{prefix}{key}"
            if isinstance(value, dict):
                branch = target.get(key)
                # a branch of our own, so that what a layer holds is never changed
                target[key] = branch = dict(branch) if isinstance(branch, dict) else {}
                self._lay(branch, source, value, f"{dotted}.")
                if not value:
                    self.trace.setdefault(dotted, []).append(Given(source, {}))
            else:
                target[key] = value
                self.trace.setdefault(dotted, []).append(Given(source, value))

    def source(self, key: str) -> str | None:
        """The strongest source of a key, or of the last value below it."""
        found = [history[-1].source for name, history in self.below(key)]
        return found[-1] if found else None

    def in_force(self, dotted: str) -> bool:
        """Whether a key still has a value: it, or the mapping it was in, may have been taken away."""
        branch: Any = self.values
        for part in dotted.split("."):
            if not isinstance(branch, dict) or branch.get(part) is None:
                return False
            branch = branch[part]
        return True

    def reasons(self) -> dict[str, str]:
        """The strongest source of what is in force, by dotted key, and by the first part of it."""
        reasons = {key: history[-1].source for key, history in self.trace.items() if self.in_force(key)}
        return {**{key.split(".", 1)[0]: source for key, source in reasons.items()}, **reasons}

    def below(self, key: str) -> Iterator[tuple[str, list[Given]]]:
        """(dotted key, all that was given for it), for a key and everything inside it."""
        return ((name, history) for name, history in self.trace.items() if name == key or name.startswith(f"{key}."))
