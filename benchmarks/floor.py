"""The floor: connect to all boxes at once and run one command there that reads the whole state. `python floor.py FILE`

FILE: {"key": path, "known_hosts": path, "command": text, "boxes": [[host, port], …]}. Nothing that is deployed by SSH
can be faster than this with the same library.
"""

from __future__ import annotations

import json
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import paramiko


class Prompt(paramiko.Transport):
    def __init__(self, sock: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def main() -> None:
    given = json.loads(Path(sys.argv[1]).read_text())
    key = paramiko.Ed25519Key.from_private_key_file(given["key"])
    known = paramiko.HostKeys(given["known_hosts"])

    def one(place: list[Any]) -> int:
        client = paramiko.SSHClient()
        client.get_host_keys().update(known)
        client.connect(
            place[0], place[1], "root", pkey=key, allow_agent=False, look_for_keys=False, transport_factory=Prompt
        )
        channel = client.get_transport().open_session()  # type: ignore[union-attr]
        channel.exec_command(given["command"])
        said = channel.makefile("rb").read()
        if channel.recv_exit_status() or not said:
            raise SystemExit(f"{place[0]}: the command failed")
        return len(said)

    with ThreadPoolExecutor(len(given["boxes"])) as pool:
        list(pool.map(one, given["boxes"]))


if __name__ == "__main__":
    main()
