"""Running the hostkit on a box: over pyinfra's SSH connection, as root or by sudo, its events shown as they come."""

from __future__ import annotations

import getpass
import json
import os
import shlex
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from gevent.lock import RLock
from paramiko import Channel, SSHException
from pyinfra.api.host import Host

from gpufleet.errors import BoxError
from gpufleet.kit import Kit, build
from gpufleet.terminal import one_line, plain

SILENCE_MS = 60_000
LOOK_SECONDS = 90  # the probe's own limits end it after some 25; more is a box that hangs
KIT_FOLDER = "/opt/gpufleet/kit"
AGAIN = "check the box and its network, then deploy again; what was begun is finished or begun anew"
PASSWORD_VARIABLE = "GPUFLEET_SUDO_PASSWORD"  # noqa: S105 - the name of a variable

# How each box becomes root: None as root itself, "" by sudo without a password, else the password.
_become: dict[str, str | None] = {}
_prompted: list[str | None] = []
_prompt_lock = RLock()


@cache
def kit() -> Kit:
    """The hostkit as this controller has it."""
    return build()


def passwords() -> set[str]:
    """The sudo passwords of this run."""
    return {password for password in (*_become.values(), *_prompted) if password}


def probe(host: Host, packages: Iterable[str]) -> dict[str, Any]:
    """The facts of a box, in one command; one more to send the kit when it is new there.

    Raises BoxError when the box cannot be reached, gives no root, or has no python3.
    """
    spec = {"packages": sorted(packages)}
    answer = _first_command(host, spec)
    if answer.startswith("GPUFLEET:NOKIT"):
        _push_kit(host)
        return dict(call(host, "probe", spec, seconds=LOOK_SECONDS)["facts"])
    if answer.startswith("GPUFLEET:"):
        raise _explain(host, answer)
    return dict(_result(host, answer.splitlines(), host.log)["facts"])


def call(
    host: Host,
    verb: str,
    spec: Mapping[str, Any],
    payload: Iterable[bytes] = (),
    seconds: float | None = None,
    progress: Callable[[Mapping[str, Any]], None] | None = None,
    log: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Run a verb of the kit as root and return its result; its log lines are shown as they come.

    + payload: bytes that follow the spec on standard input
    + seconds: how long it may be silent; None: for ever
    + progress: takes the verb's events `progress`
    + log: takes its log lines, in place of pyinfra's own output
    Raises BoxError with the cause and the remedy that the kit gives.
    """
    command = f"exec python3 {shlex.quote(_kit_path())} {shlex.quote(verb)}"
    lines = _run(host, command, _chained(_line(spec), payload), _become.get(host.name), seconds)
    return _result(host, lines, log or host.log, progress)


def _kit_path() -> str:
    return f"{KIT_FOLDER}/{kit().name}"


def _first_command(host: Host, spec: Mapping[str, Any]) -> str:
    path = shlex.quote(_kit_path())
    # The spec comes with the script and not on standard input, where sudo would take it for a second try of a password
    # that is wrong: a few of those lock an account.
    look = f"printf %s {shlex.quote(json.dumps(spec))} | $S python3 {path} probe"
    # A power cut can leave a file of the right name and no content.
    whole = f"sha256sum {path} 2>/dev/null | grep -q ^{kit().digest}"
    script = f"""
if [ "$(id -u)" = 0 ]; then S=; else
  command -v sudo >/dev/null || {{ echo GPUFLEET:NOSUDO; exit 0; }}
  E=$(LC_ALL=C sudo -n true 2>&1) || {{ echo "GPUFLEET:SUDO:$E"; exit 0; }}
  S="sudo -n"
fi
command -v python3 >/dev/null || {{ echo GPUFLEET:NOPYTHON; exit 0; }}
echo "GPUFLEET:AS:$S"
{whole} && {{ {look}; exit; }}; echo GPUFLEET:NOKIT
"""
    answer = _from_mark("\n".join(_run(host, script, [], None, LOOK_SECONDS)))
    first, _, rest = answer.partition("\n")
    if first.startswith("GPUFLEET:AS:"):
        _become[host.name] = "" if first != "GPUFLEET:AS:" else None
        return rest
    if first.startswith("GPUFLEET:SUDO:") and "password is required" in answer:
        password = _password(host)
        if password is None:
            raise BoxError(
                host.name,
                "sudo asks for a password",
                f"run this in a terminal to be asked for it, or set {PASSWORD_VARIABLE}, or allow sudo without one",
            )
        _become[host.name] = password
        root_script = f"""
S=
command -v python3 >/dev/null || {{ echo GPUFLEET:NOPYTHON; exit 0; }}
echo GPUFLEET:AS:
{whole} && {{ {look}; exit; }}; echo GPUFLEET:NOKIT
"""
        answer = _from_mark("\n".join(_run(host, root_script, [], password, LOOK_SECONDS)))
        return answer.removeprefix("GPUFLEET:AS:\n")
    return answer


def _from_mark(answer: str) -> str:
    """Without what a login shell's start-up files printed before."""
    return answer[max(answer.find("GPUFLEET:"), 0) :]


def _explain(host: Host, answer: str) -> BoxError:
    user = _user(host)
    if answer.startswith("GPUFLEET:NOPYTHON"):
        return BoxError(host.name, "there is no python3", "install it (apt-get install python3), then deploy again")
    if answer.startswith("GPUFLEET:NOSUDO"):
        return BoxError(
            host.name,
            f"{user} is not root and there is no sudo",
            "log in as root (ssh_user), or install sudo on the box",
        )
    return _no_sudo(host, answer.removeprefix("GPUFLEET:SUDO:"))


def _user(host: Host) -> str:
    return str(host.data.get("ssh_user") or "the login user")


def _no_sudo(host: Host, said: str) -> BoxError:
    cause = f"{_user(host)} may not use sudo ({' '.join(said.split()).rstrip('.')})"
    return BoxError(host.name, cause, "allow it in /etc/sudoers, or log in as root (ssh_user)")


def _push_kit(host: Host) -> None:
    """Send the kit; it is in place only when its hash is right, and older ones go.

    Each deploy writes a file of its own: two at once would write into each other's. Kits of other versions stay for a
    day, since another deploy may be using one. Units of the box call the newest by a link.
    """
    path = shlex.quote(_kit_path())
    script = f"""
umask 022; mkdir -p {KIT_FOLDER} && part=$(mktemp {KIT_FOLDER}/.part-XXXXXX) || exit 1
trap 'rm -f "$part"' EXIT
cat > "$part" || exit 1
[ "$(sha256sum < "$part" | cut -c1-64)" = {kit().digest} ] || {{ echo damaged; exit 1; }}
chmod 644 "$part" && sync "$part" && mv "$part" {path} || exit 1
ln -s {shlex.quote(kit().name)} "$part" && mv -T "$part" {KIT_FOLDER}/gpufleet-kit.pyz; sync {KIT_FOLDER}
find {KIT_FOLDER} -name '.part-*' -mmin +60 -delete
find {KIT_FOLDER} -name 'gpufleet-kit-*.pyz' ! -name {shlex.quote(kit().name)} -mmin +1440 -delete
"""
    for line in _run(host, script, [kit().data], _become.get(host.name), LOOK_SECONDS):
        raise BoxError(host.name, f"the kit could not be put into {KIT_FOLDER}: {line}", AGAIN)


def _line(spec: Mapping[str, Any]) -> list[bytes]:
    return [json.dumps(spec).encode() + b"\n"]


def _chained(first: Iterable[bytes], second: Iterable[bytes]) -> Iterator[bytes]:
    yield from first
    yield from second


def _run(
    host: Host, script: str, stdin: Iterable[bytes], password: str | None, seconds: float | None = None
) -> Iterator[str]:
    """Run a shell script on the box and yield its lines; `password`: as root through sudo ("" needs none)."""
    command = f"sh -c {shlex.quote(script)}"
    if password is not None:
        # -k: sudo always reads the password line, whether or not it remembers one; so nothing else is taken for it.
        command = f"sudo -S -k -p '' {command}" if password else f"sudo -n {command}"
        stdin = _chained([password.encode() + b"\n"] if password else [], stdin)
    # A login shell that is no POSIX shell still understands this.
    channel = _channel(host)
    channel.settimeout(seconds)
    try:
        channel.exec_command(f"env LC_ALL=C {command}")
        _send(channel, stdin)
        yield from (line.decode("utf-8", "replace").rstrip("\n") for line in channel.makefile("rb"))
        said = channel.makefile_stderr("rb").read().decode("utf-8", "replace")
        status = channel.recv_exit_status()
    except (SSHException, OSError, EOFError) as error:
        if seconds and isinstance(error, TimeoutError):
            raise BoxError(host.name, f"no answer within {seconds:.0f} s", "see what the box is busy with") from error
        raise BoxError(host.name, f"the connection broke off ({error or type(error).__name__})", AGAIN) from error
    finally:
        channel.close()
    if status == -1:
        raise BoxError(host.name, "the connection broke off while a command was running", AGAIN)
    if status != 0:
        _complain(host, said, password)


def _send(channel: Channel, stdin: Iterable[bytes]) -> None:
    """Send what the command reads. One that has ended before it read all has its reasons, which it tells."""
    try:
        for block in stdin:
            channel.sendall(block)
        channel.shutdown_write()
    except OSError:
        if not channel.get_transport().is_active():
            raise


def _complain(host: Host, said: str, password: str | None) -> None:
    """What a failed command wrote to standard error; the kit's own failures are events and need no words here."""
    text = " ".join(said.split())
    if password and ("incorrect password" in text or "Sorry, try again" in text or "no password was provided" in text):
        raise BoxError(
            host.name, "sudo does not accept the password", f"enter it again, or correct {PASSWORD_VARIABLE}"
        )
    if password is not None and ("not in the sudoers file" in text or "not allowed to" in text):
        raise _no_sudo(host, said.strip().splitlines()[-1])
    if "No space left on device" in text:
        raise BoxError(host.name, f"the file system of {KIT_FOLDER} is full", "free some MiB there, then deploy again")
    if text:
        raise BoxError(host.name, f"a command failed: {text[-400:]}", AGAIN)


def _channel(host: Host) -> Channel:
    client = getattr(host.connector, "client", None)
    transport = client.get_transport() if client else None
    if transport is None or not transport.is_active():
        raise BoxError(host.name, "there is no SSH connection", AGAIN)
    # paramiko never sets it: each command then waits some 40 ms for an acknowledgement.
    if isinstance(transport.sock, socket.socket):
        transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A box that lost its power sends nothing: without this the kernel tries for a quarter of an hour.
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_MS)
    if not transport.packetizer._Packetizer__keepalive_interval:
        transport.set_keepalive(15)
    try:
        return transport.open_session()
    except (SSHException, OSError, EOFError) as error:
        raise BoxError(host.name, f"the connection broke off ({error})", AGAIN) from error


def _result(
    host: Host,
    lines: Iterable[str],
    log: Callable[[str], None],
    progress: Callable[[Mapping[str, Any]], None] | None = None,
) -> dict[str, Any]:
    last: dict[str, Any] = {}
    stray: list[str] = []
    try:
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                event = None
            if not isinstance(event, dict) or "event" not in event:
                stray.append(line)
                continue
            if event.get("event") == "log":
                log(plain(event["message"]))
            elif event.get("event") == "progress":
                if progress:
                    progress(event)
            else:
                last = event
    except BoxError:
        if last.get("event") != "error":  # else the kit's own words say more than what stood on standard error
            raise
    if last.get("event") == "result":
        return last
    if last.get("event") == "error":
        raise BoxError(host.name, one_line(last["cause"]), one_line(last["remedy"]), bool(last.get("everywhere")))
    said = one_line(" ".join(stray)[-300:]) or "it was ended"
    raise BoxError(host.name, f"the kit gave no answer ({said})", AGAIN)


def _password(host: Host) -> str | None:
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
