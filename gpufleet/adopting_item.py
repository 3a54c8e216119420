"""What is said of one flag, variable or line of a unit that is adopted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal[
    "default",  # the stack, the model's page or the plan has it so already
    "entry",  # the serve entry gives it
    "removed",  # the model's page has it and the old service does not: the entry takes it away
    "added",  # the old service does not have it, and the instance does
    "changed",  # it is otherwise here
    "left",  # it is not carried over: the owner has to see to it
]

PROXY = (
    "a secret has no place in a release (GF502). Where clients have to have it now, the instance answers them without: "
    "before the deploy put a proxy that asks for the key before the port"
)


@dataclass(frozen=True)
class Item:
    """One of them.

    + key: a flag, `env.NAME`, `unit.Restart` and the like
    + old: of the service that runs; + new: of the instance; None where it has none
    + why: who gives the new one, or what became of the old one and what to do
    """

    kind: Kind
    key: str
    old: Any
    new: Any
    why: str
