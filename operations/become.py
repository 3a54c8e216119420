"""How each box becomes root: as root itself, by sudo without a password, or with one that is asked for once."""

from __future__ import annotations

import getpass
import os
import sys

from gevent.lock import RLock
from pyinfra.api.host import Host

from gpufleet.errors import BoxError

PASSWORD_VARIABLE = "GPUFLEET_SUDO_PASSWORD"  # noqa: S105 - the name of a variable

# None as root itself, "" by sudo without a password, else the password; by box, from its first command on.
by_box: dict[str, str | None] = {}
_prompted: list[str | None] = []
_prompt_lock = RLock()


def passwords() -> set[str]:
    """The sudo passwords of this run."""
    return {password for password in (*by_box.values(), *_prompted) if password}


def password(host: Host) -> str | None:
    """The sudo password: the box's data, pyinfra's --same-sudo-password, the environment, or asked for once."""
    given = host.data.get("_sudo_password") or host.state.config.SUDO_PASSWORD or os.environ.get(PASSWORD_VARIABLE)
    if given:
        return str(given)
    with _prompt_lock:
        if not _prompted:
            try:
                asked = getpass.getpass("sudo password (for all boxes that ask): ") if sys.stdin.isatty() else None
            except EOFError:
                asked = None
            _prompted.append(asked)
        return _prompted[0] or None


def user(host: Host) -> str:
    return str(host.data.get("ssh_user") or "the login user")


def no_sudo(host: Host, said: str) -> BoxError:
    cause = f"{user(host)} may not use sudo ({' '.join(said.split()).rstrip('.')})"
    return BoxError(host.name, cause, "allow it in /etc/sudoers, or log in as root (ssh_user)")
