"""Sockets and threads of this process are gevent's, as pyinfra has it: to be imported before any of them are used.

Folders are closed at once, where gevent (25.8.1 and newer) would wait for its loop to run next: a tree that is deleted
meanwhile would hold each of its folders open, and end at the limit of open files.
"""

from __future__ import annotations

import os
import stat

import pyinfra_cli  # noqa: F401 - has gevent patch the process
from gevent import monkey

_at_once, _later = monkey.get_original("os", "close"), os.close


def close(fd: int) -> None:
    """os.close. A folder has no input or output that anybody could wait for; all else may have, and is gevent's."""
    (_at_once if stat.S_ISDIR(os.fstat(fd).st_mode) else _later)(fd)


os.close = close
