"""Boots a box with systemd-nspawn, waits until it answers, and ends it: by its power button or by the plug."""

from __future__ import annotations

import contextlib
import shlex
import signal
import socket
import subprocess
import time
from pathlib import Path

from lab import processes
from lab.cache import digest
from lab.errors import LabError
from lab.paths import Settings, box_number

POWER_OFF = signal.SIGRTMIN + 4  # systemd, as PID 1, takes it as `systemctl poweroff`
BOOT_SECONDS = 120
CGROUPS = Path("/sys/fs/cgroup")
RUNTIME = Path("/run/systemd/nspawn")
# nspawn ends with 133 when the box reboots, for a service manager to start it again: here this loop does
KEEPER = 'while :; do "$@"; ended=$?; [ $ended -eq 133 ] || break; done; echo "systemd-nspawn ended with $ended"'


def machine(settings: Settings, name: str) -> str:
    """nspawn names the box's interface by it: unlike another lab's, and short enough to be taken as it is."""
    return f"{settings.bridge}-{box_number(name)}"


def cgroups(settings: Settings, name: str) -> list[Path]:
    """Control groups of the box's own, in each hierarchy systemd uses (two on a hybrid machine).

    nspawn makes its payload below the caller's group: two boxes in one would share those of services.
    """
    return [place / name for place in cgroup_places(settings)]


def cgroup_name(settings: Settings) -> str:
    return f"gpufleet-lab-{digest(str(settings.home))}"


def cgroup_places(settings: Settings) -> list[Path]:
    hierarchies = [CGROUPS, CGROUPS / "systemd", CGROUPS / "unified"]
    return [hierarchy / cgroup_name(settings) for hierarchy in hierarchies if (hierarchy / "cgroup.procs").exists()]


def names_in_cgroups(settings: Settings) -> set[str]:
    """The boxes of this lab that have control groups, whether or not they have a disk any more."""
    return {group.name for place in cgroup_places(settings) for group in place.glob("lab-*")}


def start(settings: Settings, name: str, root: Path) -> None:
    """Start the box, in a session of its own so that it outlives the command."""
    nspawn = [
        "systemd-nspawn", "--quiet", f"--directory={root}", f"--machine={machine(settings, name)}",
        f"--hostname={name}", "--register=no", "--keep-unit", "--network-veth", f"--network-bridge={settings.bridge}",
        "--resolv-conf=off", "--link-journal=no", "--boot",
    ]  # fmt: skip
    groups = cgroups(settings, name)
    for group in groups:
        group.mkdir(parents=True, exist_ok=True)
    # the kernel takes the interface of a box that ended away a little after its processes
    interface = shlex.quote(f"/sys/class/net/vb-{machine(settings, name)}")
    enter = "".join(f"echo $$ > {shlex.quote(str(group / 'cgroup.procs'))} || exit; " for group in groups)
    once = ["sh", "-c", f'while [ -e {interface} ]; do sleep 0.05; done; {enter}exec "$@"', "sh", *nspawn]
    with console(root).open("wb") as log:
        subprocess.Popen(
            ["sh", "-c", KEEPER, "sh", *once],
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip


def console(root: Path) -> Path:
    return root.parent / "console.log"


def wait_ready(name: str, address: str, root: Path, seconds: float = BOOT_SECONDS) -> tuple[int, int]:
    """Wait until systemd has started all and sshd answers; returns the ids of systemd-nspawn and the box's PID 1."""
    until = time.monotonic() + seconds
    state = "nothing"
    while time.monotonic() < until:
        if not keepers(root):
            raise LabError(f"{name}: its systemd-nspawn ended while it booted:\n{tail(console(root))}")
        nspawn = running(root)
        init = processes.init_of(nspawn) if nspawn else None
        if nspawn and init:
            state = system_state(init)
            if state in ("running", "degraded") and sshd_answers(address):
                return nspawn, init
        time.sleep(0.1)
    raise LabError(
        f"{name}: not ready after {seconds:.0f} s (systemd says {state!r}, address {address}):\n{tail(console(root))}",
        "Look inside: nsenter -a -t PID journalctl -b, with the PID of the box's systemd.",
    )


def system_state(init: int) -> str:
    command = ["nsenter", "-t", str(init), "-m", "-u", "-i", "-n", "-p", "systemctl", "is-system-running"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=20).stdout.strip()
    except subprocess.TimeoutExpired:
        return "no answer"


def sshd_answers(address: str) -> bool:
    try:
        with socket.create_connection((address, 22), timeout=1) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def tail(path: Path) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-15:])


def running(root: Path) -> int | None:
    """The systemd-nspawn of a box, found by its command line and not by a number that may be another's by now."""
    for process in processes.every():
        if is_nspawn(process.arguments, root):
            return process.pid
    return None


def keepers(root: Path) -> list[int]:
    """All processes that hold the box up: its systemd-nspawn, and what starts that again after a reboot."""
    return [process.pid for process in processes.every() if is_keeper(process.arguments, root)]


def is_nspawn(arguments: tuple[str, ...], root: Path) -> bool:
    return is_keeper(arguments, root) and Path(arguments[0]).name == "systemd-nspawn"


def is_keeper(arguments: tuple[str, ...], root: Path) -> bool:
    return "systemd-nspawn" in (Path(argument).name for argument in arguments) and f"--directory={root}" in arguments


def members(settings: Settings, name: str) -> list[int]:
    """All processes in the box's control groups: its own, also those that outlive their systemd-nspawn."""
    return processes.in_cgroup(f"/{cgroup_name(settings)}/{name}")


def power_off(settings: Settings, name: str) -> None:
    """Press the button; the box shuts down on its own time."""
    if init := processes.first_init(members(settings, name)):
        processes.send([init], POWER_OFF)


def cut_power(settings: Settings, name: str, root: Path) -> None:
    """Pull the plug: nothing inside gets to run again."""
    if left := processes.kill([*keepers(root), *members(settings, name)]):
        raise LabError(f"{name}: processes {left} outlive SIGKILL", "See what they wait for: ps -o stat,wchan.")


def clean(settings: Settings, name: str) -> None:
    """Take away what a box that ended leaves: its empty control groups (the deepest first), nspawn's directory."""
    try_rmdir(RUNTIME / "propagate" / machine(settings, name))
    for group in cgroups(settings, name):
        for directory in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
            try_rmdir(directory)
        try_rmdir(group)
        try_rmdir(group.parent)


def try_rmdir(directory: Path) -> None:
    with contextlib.suppress(OSError):  # another box's, or not let go of by the kernel yet: it holds nothing
        directory.rmdir()
