"""What all facts of a box have in common: their base, and the kinds of values that several of them have."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Moment = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]
Count = Annotated[int, Field(ge=0)]


class Fact(BaseModel):
    """Base of the facts: what a newer kit tells beyond these is ignored, nothing is converted."""

    model_config = ConfigDict(defer_build=True, extra="ignore", strict=True, frozen=True)


class Nothing(BaseModel):
    """`{}`: the source failed, which `errors` says."""

    model_config = ConfigDict(defer_build=True, extra="forbid", strict=True, frozen=True)
