"""The fleet's lock on one box: asked for, taken over from a process of this machine that is gone, let go of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyinfra.api.host import Host

from operations import holder, remote

LEASE_SECONDS = 600
RENEW_SECONDS = 120
ANSWER_SECONDS = 30
RELEASE_SECONDS = 10


def take(host: Host, mine: str, who: Mapping[str, Any], tell: Callable[[str], None]) -> dict[str, Any]:
    """The lock that the box has after that: ours, or another's. Raises BoxError when the box does not answer.

    + mine: the lock's id; who: its holder, see hostkit/lock.py; tell: takes a line about who had it before
    """
    held: dict[str, Any] = call(host, "take", mine, who)["lock"]
    if held["id"] != mine and holder.is_dead(held):
        tell(f"the lock of a run that is gone is taken over: {holder.words(held)}")
        remote.call(host, "lock", {"action": "break", "id": held["id"]}, seconds=ANSWER_SECONDS)
        held = call(host, "take", mine, who)["lock"]
    return held


def renew(host: Host, mine: str, who: Mapping[str, Any]) -> dict[str, Any] | None:
    """Who has it now, when it was broken and is another's; one whose lease was over meanwhile is taken again."""
    answer = call(host, "renew", mine, who)
    if not answer["held"] and not answer["lock"]:
        answer = call(host, "take", mine, who)
    return None if answer["held"] else answer["lock"]


def release(host: Host, mine: str) -> None:
    remote.call(host, "lock", {"action": "release", "id": mine}, seconds=RELEASE_SECONDS)


def call(host: Host, action: str, mine: str, who: Mapping[str, Any]) -> dict[str, Any]:
    spec = {"action": action, "id": mine, "holder": dict(who), "seconds": LEASE_SECONDS}
    return remote.call(host, "lock", spec, seconds=ANSWER_SECONDS)
