"""`lab down`: nothing of the lab is left but its cache.

It works from what is there, not from lab.json: so also after a crash.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable

from lab import boxes, network, nspawn, rootfs, server
from lab.cache import locked
from lab.errors import LabError
from lab.paths import Settings
from lab.processes import every, mounts_under, read, wait_gone

POWER_OFF_SECONDS = 10


def down(settings: Settings, say: Callable[[str], None], *, everything: bool = False) -> None:
    """End all boxes, the server and the bridge, and remove the disks; with `everything` also the cache."""
    if not settings.home.exists() and not network.down(settings):
        say("there is no lab")
        return
    with locked(settings.home, "this lab"):
        names = sorted({*boxes.names_on_disk(settings), *nspawn.names_in_cgroups(settings)})
        stop_boxes(settings, names)
        server.stop(settings)
        rootfs.unmount(settings.boxes)
        for name in names:
            nspawn.clean(settings, name)
            boxes.forget(name)
        network.down(settings)
        if mounts := mounts_under(settings.boxes):
            raise LabError(
                f"still mounted: {', '.join(map(str, mounts))}", "Their disks are kept; what uses them: fuser -vm DIR"
            )
        remove_files(settings, everything=everything)
    kept = f"the cache stays in {settings.cache}" if settings.cache.exists() else "nothing is left"
    say(f"{len(names)} boxes ended; {kept}")


def stop_boxes(settings: Settings, names: list[str]) -> None:
    for name in names:
        nspawn.power_off(settings, name)
    wait_gone([pid for name in names for pid in holders(settings, name)], POWER_OFF_SECONDS)
    for name in names:
        nspawn.cut_power(settings, name, rootfs.root(settings, name))


def holders(settings: Settings, name: str) -> list[int]:
    return [*nspawn.keepers(rootfs.root(settings, name)), *nspawn.members(settings, name)]


def remove_files(settings: Settings, *, everything: bool) -> None:
    for entry in settings.home.iterdir():
        if entry == settings.cache or entry.name == ".lock" or settings.cache.is_relative_to(entry):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    if everything:
        shutil.rmtree(settings.cache, ignore_errors=True)
        shutil.rmtree(settings.home)
    elif not settings.cache.is_relative_to(settings.home) or not settings.cache.exists():
        shutil.rmtree(settings.home)


def leftovers(settings: Settings) -> list[str]:
    """What is of this lab and still there, in words; empty when it is down."""
    found = [f"mount {point}" for point in mounts_under(settings.boxes)]
    for process in every():
        if read(process.pid) and is_ours(process.arguments, settings):
            found.append(f"process {process.pid} {' '.join(process.arguments[:4])}")
    found += [f"process {pid}" for name in nspawn.names_in_cgroups(settings) for pid in nspawn.members(settings, name)]
    try:
        if network.find(settings):
            found.append(f"bridge {settings.bridge}")
    except LabError:
        pass
    return found


def is_ours(arguments: tuple[str, ...], settings: Settings) -> bool:
    own = (f"{settings.boxes}/", str(settings.www))
    return any(argument.removeprefix("--directory=").startswith(own) for argument in arguments)
