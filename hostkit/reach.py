"""Whether the services get to where runtimes are: a link to another disk may lead to where they see nothing."""

from __future__ import annotations

import os
import stat

from hostkit import files, release, shell
from hostkit.errors import Failure

HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # by ProtectHome= and PrivateTmp= of the services' unit


def require(directory: str) -> None:
    """Raise Failure unless the services' user gets to this directory. Before anything is installed: the verification
    would find it, too, but without a word, and after all has been compiled.
    """
    real = os.path.realpath(directory)
    for hidden in HIDDEN:
        if real.startswith(hidden + "/"):
            raise Failure(
                "{} leads to {}, and services see nothing of {}".format(directory, real, hidden),
                "move it to another place, such as /srv, and correct the link; then deploy again",
            )
    release.ensure_user()
    at = "/"
    for name in real.strip("/").split("/"):
        at = os.path.join(at, name)
        if not enters(at):
            mode = stat.S_IMODE(os.stat(at).st_mode)
            raise Failure(
                "the services' user {} may not enter {} (mode {:04o})".format(files.USER, at, mode),
                "run `chmod o+x {}` on the box, then deploy again".format(at),
            )


def enters(directory: str) -> bool:
    """Asked of the kernel as that user: groups and access lists count."""
    as_user = ["setpriv", "--reuid=" + files.USER, "--regid=" + files.USER, "--init-groups"]
    try:
        shell.run([*as_user, "test", "-x", directory])
    except shell.Ended:
        return False
    return True
