"""Where a box is, as people write it for ssh: `HOST`, `USER@HOST:PORT`, an IPv6 address bare or in brackets. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

PORTS = range(1, 65536)
_USER = re.compile(r"^[^\s:/-][^\s:/]*$")
# HOST, HOST:PORT, [ADDRESS]:PORT, or an IPv6 address as it is.
_PLACE = re.compile(
    r"^(?:\[(?P<bracketed>[0-9A-Fa-f:.%]+)\]|(?P<host>[A-Za-z0-9][A-Za-z0-9._-]*))(?::(?P<port>\d{1,5}))?$"
    r"|^(?P<v6>[0-9A-Fa-f]*:[0-9A-Fa-f:.%]*:[0-9A-Za-z:.%]*)$"
)


def parse(text: str) -> dict[str, Any] | None:
    """{"ssh_hostname", and "ssh_port" and "ssh_user" where they are given}; None for what is no address.

    The port may be a number that is none of a port: see `problems`.
    """
    user, at, place = text.rpartition("@")
    found = _PLACE.match(place)
    if not found or (at and ("@" in user or not _USER.fullmatch(user))):
        return None
    data: dict[str, Any] = {"ssh_hostname": found["bracketed"] or found["host"] or found["v6"]}
    if found["port"]:
        data["ssh_port"] = int(found["port"])
    return {**data, "ssh_user": user} if at else data


def problems(data: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with `ssh_port` and `ssh_user` of a box, where they are given.

    A port that is none would be taken modulo 65536, and another machine's service asked.
    """
    port, user = data.get("ssh_port"), data.get("ssh_user")
    if port is not None and (isinstance(port, bool) or not isinstance(port, int) or port not in PORTS):
        yield f"ssh_port is {port!r}; it must be {PORTS.start} to {PORTS.stop - 1}"
    if isinstance(user, str) and not _USER.fullmatch(user):
        yield f"ssh_user is {user!r}; it must be the name of a user, without spaces, : and /"
