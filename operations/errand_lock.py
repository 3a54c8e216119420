"""The fleet's lock for a command that switches instances of one box, held as a deploy holds it: so neither meets the
other in the middle."""

from __future__ import annotations

import os
import socket
import time
import uuid
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

import click
import gevent
from pyinfra.api.host import Host

from gpufleet.reports import moment, who
from operations import claim, holder, lease


class Lock:
    """Of one command. + folder: where the inventory's reports lie; + what: `rollback of box-1/qwen of PATH`"""

    def __init__(self, folder: Path, what: str) -> None:
        self.folder, self.id = folder, f"{holder.place()}-{uuid.uuid4().hex}"
        run = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{token_hex(2)}"
        self.who = {"who": who(), "host": socket.gethostname(), "pid": os.getpid(), "run": run, "what": what}
        self.host: Host | None = None  # that may have it
        self.renewing: gevent.Greenlet | None = None

    def take(self, host: Host) -> dict[str, Any] | None:
        """Who has it instead of us. Raises BoxError when the box does not answer."""
        other = claim.other(self.folder, {**self.who, "since": moment(time.time())})
        if other:
            return other
        self.host = host
        held = lease.take(host, self.id, self.who, lambda line: click.echo(f"{host.name}: {line}"))
        if held["id"] != self.id:
            self.host = None
            return held
        self.renewing = gevent.spawn(self._renew)
        return None

    def _renew(self) -> None:
        while self.host:
            gevent.sleep(lease.RENEW_SECONDS)
            with suppress(Exception):  # what is wrong with the box shows in what is done there
                lease.renew(self.host, self.id, self.who)

    def gone(self) -> None:
        """The box has no lock any more, nor anything that could let go of one."""
        self.host = None
        self.release()

    def release(self) -> None:
        """However it ended, and once. A box that cannot be told keeps the lock until its lease is over."""
        host, self.host = self.host, None
        if self.renewing:
            self.renewing.kill(block=False)
        if host:
            try:
                with gevent.Timeout(lease.RELEASE_SECONDS):
                    lease.release(host, self.id)
            except (Exception, gevent.Timeout) as error:
                click.echo(f"gpufleet: {host.name} keeps the lock until its lease is over ({error})", err=True)
        claim.let_go()
