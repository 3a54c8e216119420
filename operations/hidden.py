"""What must not be read in a report: passwords of this run, and what an owner puts into the environment of services."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from gpufleet.masking import is_secret
from gpufleet.plan import Instance
from operations import become
from operations.run import Session

PASSWORDS = ("_sudo_password", "ssh_password", "ssh_key_password")
# Who gives variables that are no secret: the product's own pages, which are public, and what follows from the plan.
PUBLIC = ("stack ", "model ", "computed", "default")


def of(session: Session) -> set[str]:
    """Every value of this run that is one."""
    values = {*become.passwords(), os.environ.get(become.PASSWORD_VARIABLE)}
    given: list[Mapping[str, Any]] = [session.overrides]
    given += session.fleet.addresses.values() if session.fleet else ()
    values |= {data.get(key) for data in given for key in PASSWORDS}
    for outcome in session.outcomes.values():
        for instance in outcome.plan.instances if outcome.plan else ():
            values |= {*_of_instance(instance)}
    return {str(value) for value in values if value}


def _of_instance(instance: Instance) -> Iterator[Any]:
    for key, value in instance.env.items():
        if is_secret(key, anywhere=True) or not (instance.variables.source(key) or "").startswith(PUBLIC):
            yield value
    for key, value in instance.args.items():
        if is_secret(key, anywhere=True) and not isinstance(value, bool):
            yield from value if isinstance(value, list) else [value]
