"""The report of a run (gpufleet.reports) as types.

`python -m gpufleet.report_schema > docs/reference/report.schema.json` writes the JSON schema anew.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from gpufleet.fact import Count, Moment


class Part(BaseModel):
    """Base of the report's parts: nothing is converted, nothing more is allowed."""

    model_config = ConfigDict(defer_build=True, extra="forbid", strict=True, frozen=True)


class Wave(Part):
    """`switched`: the boxes that were, null when the wave had no turn."""

    number: Count
    reason: str
    boxes: list[str]
    switched: list[str] | None


class Finding(Part):
    code: str
    level: Literal["error", "warning", "info"]


class Step(Part):
    """An operation of deploy.py on the box. `seconds` is null when it did not end."""

    step: str
    began: Moment
    seconds: float | None
    changed: bool
    outcome: Literal["done", "failed", "interrupted"]


class Instance(Part):
    """Digests of releases: `before` the run, `planned`, and `after` it, as far as the run has seen."""

    model: str | None
    stack: str | None
    port: int | None
    planned: str | None
    before: str | None
    after: str | None
    changed: bool
    put_back: bool
    gate: dict[str, Any] | None


class Failure(Part):
    """`log`: the last lines of the log of the instance that failed, empty when there are none."""

    cause: str
    remedy: str
    log: str


class Box(Part):
    traits: list[str]
    outcome: Literal[
        "failed", "refused", "put back", "not touched", "nothing to do", "interrupted", "would change", "changed"
    ]
    findings: list[Finding]
    to_do: list[str]
    steps: list[Step]
    instances: dict[str, Instance]
    failure: Failure | None


class Report(Part):
    schema_: Literal[1]
    version: str
    run: str
    began: Moment
    ended: Moment
    seconds: float
    who: str
    host: str
    inventory: str
    limit: list[str]
    exclude: list[str]
    dry: bool
    end: Literal["done", "failed", "wrong", "refused", "locked", "would change", "interrupted"]
    exit_code: int
    message: str | None
    waves: list[Wave]
    boxes: dict[str, Box]

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=lambda name: name.rstrip("_"))


def json_schema() -> dict[str, Any]:
    """JSON Schema, draft 2020-12."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Report.model_json_schema()}


def json_schema_text() -> str:
    """The text of docs/reference/report.schema.json."""
    return json.dumps(json_schema(), indent=1) + "\n"


if __name__ == "__main__":
    print(json_schema_text(), end="")
