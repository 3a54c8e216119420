"""Persistence mode and power limits of cards, by NVML."""

from __future__ import annotations

from typing import Any, Callable, Optional

from hostkit.host_values import Refused, Value


def of_cards(spec: dict) -> list:
    """Values for each card; persistence first, for without it the driver forgets a limit when nobody uses the card.

    spec: {"persistence_mode": bool or absent, "power_limit": {uuid: watts}}; cards that only the driver knows get the
    mode, too. One value that cannot be had stands for all of them where NVML does not answer.
    """
    mode, limits = spec.get("persistence_mode"), spec.get("power_limit") or {}
    if mode is None and not limits:
        return []
    try:
        import pynvml

        pynvml.nvmlInit()
        handles = by_uuid(pynvml)
    except Exception as error:  # no library, no driver, or one that is not what pynvml expects
        return [unknown(key, "NVML does not answer ({})".format(error)) for key in keys(spec)]
    values = []
    if mode is not None:
        values += [of_mode(pynvml, uuid, handle, mode) for uuid, handle in sorted(handles.items())]
    for uuid, watts in sorted(limits.items()):
        if uuid in handles:
            values.append(of_limit(pynvml, uuid, handles[uuid], watts))
        else:
            values.append(unknown("power_limit." + uuid, "there is no such card, or it does not answer"))
    return values


def of_card(name: str, uuid: str, wanted: Any) -> Optional[Value]:
    """The mode or the limit of one card; None where it is not there, or nobody answers."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = by_uuid(pynvml)[uuid]
    except Exception:  # no library, no driver, no such card
        return None
    make = {"persistence_mode": of_mode, "power_limit": of_limit}.get(name)
    return make(pynvml, uuid, handle, wanted) if make else None


def keys(spec: dict) -> list:
    found = ["persistence_mode"] if spec.get("persistence_mode") is not None else []
    return found + ["power_limit." + uuid for uuid in sorted(spec.get("power_limit") or {})]


def by_uuid(pynvml: Any) -> dict:
    handles = {}
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            handles[pynvml.nvmlDeviceGetUUID(handle)] = handle
        except Exception:  # noqa: S112 - a card that is lost is not there; the others are
            continue
    return handles


def of_mode(pynvml: Any, uuid: str, handle: Any, mode: bool) -> Value:
    return Value(
        "persistence_mode." + uuid,
        "persistence mode of " + uuid,
        mode,
        lambda: bool(asked(pynvml.nvmlDeviceGetPersistenceMode, handle)),
        lambda: told(pynvml.nvmlDeviceSetPersistenceMode, handle, int(mode)),
    )


def of_limit(pynvml: Any, uuid: str, handle: Any, watts: int) -> Value:
    return Value(
        "power_limit." + uuid,
        "the power limit of " + uuid,
        watts,
        lambda: round(asked(pynvml.nvmlDeviceGetPowerManagementLimit, handle) / 1000),
        lambda: told(pynvml.nvmlDeviceSetPowerManagementLimit, handle, watts * 1000),
    )


def asked(function: Callable, handle: Any) -> Any:
    try:
        return function(handle)
    except Exception as error:  # NVMLError, and what ctypes raises
        raise Refused("the card does not tell ({})".format(error))


def told(function: Callable, handle: Any, value: int) -> None:
    try:
        function(handle, value)
    except Exception as error:  # NVMLError, and what ctypes raises
        raise Refused("the driver refuses it ({})".format(error))


def unknown(key: str, why: str) -> Value:
    def read() -> Optional[int]:
        raise Refused(why)

    return Value(key, key.replace(".", " of ").replace("_", " "), None, read, lambda: None)
