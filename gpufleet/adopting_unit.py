"""What of a unit of the owner's is otherwise as an instance, and what is not carried over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpufleet.adopting_item import Item
from gpufleet.replacing import is_shared

LIMITS = (
    *("MemoryMax", "MemoryHigh", "CPUQuota", "CPUAffinity", "AllowedCPUs", "NUMAPolicy", "NUMAMask", "Nice"),
    *("OOMScoreAdjust", "RuntimeMaxSec", "WatchdogSec", "OnFailure"),
)
COMMANDS = ("ExecStartPre", "ExecStartPost", "ExecStop", "ExecStopPost")
RESTART = "after five starts within half an hour it stays down, and says so"


def can_be_replaced(service: Mapping[str, Any]) -> bool:
    """Whether a unit of the system's starts it, and nothing else, so that a deploy may stop that and start it again."""
    known = service.get("scope") == "system" and service.get("unit") and not service.get("transient")
    return bool(known) and not _is_guest(service)


def _is_guest(service: Mapping[str, Any]) -> bool:
    """Whether it was started in a unit that is there for other things: by cron, or by a login that has no session."""
    if service.get("scope") != "system" or service.get("transient"):
        return False
    return is_shared(str(service.get("unit")), service.get("fragment"))


def items(service: Mapping[str, Any], name: str) -> Iterator[Item]:
    """What is said of the lines of its unit; `name` is the instance's."""
    settings: Mapping[str, Sequence[str]] = {} if _is_guest(service) else service.get("settings") or {}

    def last(key: str) -> str | None:
        values = settings.get(key)
        return values[-1] if values else None

    user = service.get("user")
    if user != "gpufleet":
        yield Item("changed", "unit.User", user, "gpufleet", "its home is the instance's own; nothing of a login's")
    restart = last("Restart")
    if restart not in (None, "on-failure"):
        yield Item("changed", "unit.Restart", restart, "on-failure", RESTART)
    for key in ("StandardOutput", "StandardError"):
        value = last(key)
        again = key == "StandardError" and value == last("StandardOutput")
        if value is not None and value.startswith(("append:", "file:", "truncate:")) and not again:
            path = value.partition(":")[2]
            why = f"`gpufleet logs` shows it, journald keeps it within bounds; {path} stays as it is"
            yield Item("changed", f"unit.{key}", value, "journal", why)
    if last("TimeoutStartSec") is not None:
        why = "it starts at once, and the gate waits for its first completion: `gate.timeout` of the model's page"
        yield Item("changed", "unit.TimeoutStartSec", last("TimeoutStartSec"), None, why)
    if (folder := last("WorkingDirectory")) is not None:
        yield Item("changed", "unit.WorkingDirectory", folder, f"/var/lib/gpufleet-{name}", "a folder of its own")
    for key in COMMANDS:
        for value in settings.get(key) or ():
            why = "not carried over: a new runtime is verified before it counts, and gates ask the service itself"
            yield Item("left", f"unit.{key}", value, None, why)
    for key in LIMITS:
        if (value := last(key)) is not None:
            yield Item("left", f"unit.{key}", value, None, "not carried over: an instance has none")
    if can_be_replaced(service) and service.get("enabled") != "enabled":
        state = service.get("enabled") or "not enabled"
        yield Item("changed", "unit.enabled", state, "enabled", "an instance starts at boot")


def by_hand(service: Mapping[str, Any]) -> str | None:
    """How a service is stopped that no unit of the system starts; None for one that `replaces` can name."""
    scope, unit, pid, user = (service.get(key) for key in ("scope", "unit", "pid", "user"))
    if scope == "user":
        return f"stop it before the deploy, as {user}: systemctl --user disable --now {unit}"
    if scope == "session":
        return f"it was started by hand: end it before the deploy (kill {pid}), and what starts it again"
    if service.get("transient"):
        return f"{unit} is a unit of systemd-run, gone when it ends: stop it before the deploy (systemctl stop {unit})"
    if _is_guest(service):
        again = f"end it before the deploy (kill {pid}), and what starts it again"
        return f"it was started within {unit}, which is there for more than that: {again}"
    return None
