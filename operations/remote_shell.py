"""Running a shell script on a box over pyinfra's SSH connection, as root or by sudo, its lines as they come."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from typing import TypeVar

from paramiko import Channel, ChannelException, SSHException
from pyinfra.api.host import Host

from gpufleet.errors import BoxError
from gpufleet.kit import FOLDER
from operations.become import PASSWORD_VARIABLE, no_sudo

AGAIN = "check the box and its network, then deploy again; what was begun is finished or begun anew"
ROOM_SECONDS = 10
T = TypeVar("T")
GONE = (SSHException, OSError, EOFError)  # what paramiko raises where the connection is no more, also while it closes


def run(
    host: Host, script: str, stdin: Iterable[bytes], password: str | None, seconds: float | None = None
) -> Iterator[str]:
    """Run a shell script on the box and yield its lines; see Command. + seconds: how long it may be silent"""
    command = Command(host, script, password)
    try:
        yield from command.lines(stdin, seconds)
        command.end()
    finally:
        command.close()


class Command:
    """A shell script that runs on a box; `password`: as root through sudo ("" needs none). All raise BoxError."""

    def __init__(self, host: Host, script: str, password: str | None) -> None:
        self.host, self.password = host, password
        self._seconds: float | None = None
        command = f"sh -c {shlex.quote(script)}"
        if password is not None:
            # -k: sudo always reads the password line, whether or not it remembers one; so nothing else is taken for it.
            command = f"sudo -S -k -p '' {command}" if password else f"sudo -n {command}"
        self._channel = _channel(host)
        try:
            with self._words():
                # A login shell that is no POSIX shell still understands this.
                self._channel.exec_command(f"env LC_ALL=C {command}")
                self._output = self._channel.makefile("rb")
                self._said = self._channel.makefile_stderr("rb")
        except BoxError:
            self.close()
            raise
        self._first = [password.encode() + b"\n"] if password else []

    def lines(self, stdin: Iterable[bytes], seconds: float | None, *, more: bool = False) -> Iterator[str]:
        """Send what the command reads, and yield what it prints, until its end.

        + seconds: how long it may be silent; None: for ever
        + more: there will be more for it to read
        """
        first, self._first = self._first, []
        self._seconds = seconds
        self._channel.settimeout(seconds)
        with self._words():
            _send(self._channel, chain(first, stdin), more)
            yield from (line.decode("utf-8", "replace").rstrip("\n") for line in self._output)

    def no_more(self) -> None:
        """It has read all that there will be."""
        with self._words():
            _send(self._channel, [], more=False)

    def end(self) -> None:
        """Wait for its end; what it wrote to standard error is raised when that was a bad one."""
        with self._words():
            said = self._said.read().decode("utf-8", "replace")
            status = self._channel.recv_exit_status()
        if status == -1:
            raise BoxError(self.host.name, "the connection broke off while a command was running", AGAIN)
        if status != 0:
            complain(self.host, said, self.password)

    def runs_on(self, host: Host) -> bool:
        """Whether it can be told more, over the connection that the box has now."""
        client, channel = getattr(host.connector, "client", None), self._channel
        there = client is not None and channel.get_transport() is client.get_transport()
        return there and not (channel.closed or channel.eof_received or channel.exit_status_ready())

    def close(self) -> None:
        with suppress(*GONE):
            self._channel.close()

    @contextmanager
    def _words(self) -> Iterator[None]:
        try:
            yield
        except GONE as error:
            if self._seconds and isinstance(error, TimeoutError):
                cause = f"no answer within {self._seconds:.0f} s"
                raise BoxError(self.host.name, cause, "see what the box is busy with") from error
            raise broke_off(self.host, error) from error


def _send(channel: Channel, stdin: Iterable[bytes], more: bool) -> None:
    """Send what the command reads. One that has ended before it read all has its reasons, which it tells."""
    try:
        for block in stdin:
            channel.sendall(block)
        if not more:
            channel.shutdown_write()
    except OSError:
        if not channel.get_transport().is_active():
            raise


def broke_off(host: Host, error: BaseException) -> BoxError:
    """For one of GONE."""
    return BoxError(host.name, f"the connection broke off{f' ({error})' if str(error) else ''}", AGAIN)


def complain(host: Host, said: str, password: str | None) -> None:
    """What a failed command wrote to standard error; the kit's own failures are events and need no words here."""
    text = " ".join(said.split())
    if password and ("incorrect password" in text or "Sorry, try again" in text or "no password was provided" in text):
        raise BoxError(
            host.name, "sudo does not accept the password", f"enter it again, or correct {PASSWORD_VARIABLE}"
        )
    if password is not None and ("not in the sudoers file" in text or "not allowed to" in text):
        raise no_sudo(host, said.strip().splitlines()[-1])
    if "No space left on device" in text:
        raise BoxError(host.name, f"the file system of {FOLDER} is full", "free some MiB there, then deploy again")
    if text:
        raise BoxError(host.name, f"a command failed: {text[-400:]}", AGAIN)


def _channel(host: Host) -> Channel:
    client = getattr(host.connector, "client", None)
    transport = client.get_transport() if client else None
    if transport is None or not transport.is_active():
        raise BoxError(host.name, "there is no SSH connection", AGAIN)
    if not transport.packetizer._Packetizer__keepalive_interval:
        transport.set_keepalive(15)
    try:
        return opened(host, transport.open_session)
    except GONE as error:
        raise broke_off(host, error) from error


def opened(host: Host, open_: Callable[[], T]) -> T:
    """What opens a channel. Where the box allows no more of them at once, processes that only wait make room."""
    until = 0.0
    while True:
        try:
            return open_()
        except ChannelException:
            from operations import questions  # which needs this module

            if not until:
                if not questions.close_waiting(host):
                    raise
                until = time.monotonic() + ROOM_SECONDS
            if time.monotonic() > until:
                raise
            time.sleep(0.1)  # sshd counts one until its process has ended
