"""Where a box is, as people write it for ssh: `HOST`, `USER@HOST:PORT`, an IPv6 address bare or in brackets. No I/O."""

from __future__ import annotations

import re
from typing import Any

_USER = re.compile(r"^[^\s:/-][^\s:/]*$")
# HOST, HOST:PORT, [ADDRESS]:PORT, or an IPv6 address as it is.
_PLACE = re.compile(
    r"^(?:\[(?P<bracketed>[0-9A-Fa-f:.%]+)\]|(?P<host>[A-Za-z0-9][A-Za-z0-9._-]*))(?::(?P<port>\d{1,5}))?$"
    r"|^(?P<v6>[0-9A-Fa-f]*:[0-9A-Fa-f:.%]*:[0-9A-Za-z:.%]*)$"
)


def parse(text: str) -> dict[str, Any] | None:
    """{"ssh_hostname", and "ssh_port" and "ssh_user" where they are given}; None for what is no address."""
    user, at, place = text.rpartition("@")
    found = _PLACE.match(place)
    if not found or (at and not _USER.match(user)):
        return None
    data: dict[str, Any] = {"ssh_hostname": found["bracketed"] or found["host"] or found["v6"]}
    if found["port"]:
        data["ssh_port"] = int(found["port"])
    return {**data, "ssh_user": user} if at else data
