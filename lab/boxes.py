"""One box from disk to login and back: made, started, its power cut, found again."""

from __future__ import annotations

from pathlib import Path

from lab import nspawn, nvml, rootfs, state
from lab.errors import LabError
from lab.paths import REPOSITORY, Settings
from lab.processes import init_of

# What deploys of inventory/lab.py have learnt of the boxes.
FACTS = REPOSITORY / "inventory" / "facts" / "lab"


def prepare(settings: Settings, box: state.Box, base: Path) -> None:
    """Have the disk mounted, and personal to the box; a box that stopped half made is made to the end."""
    rootfs.mount(settings, box.name, base)
    if not rootfs.is_personal(settings, box.name):
        root = rootfs.root(settings, box.name)
        nvml.install(root, nvml.scenario(box.topology) if box.topology else None)
        topology_file(settings, box.name).write_text(box.topology or "")
        forget(box.name)
        rootfs.personalize(settings, box.name)


def forget(name: str) -> None:
    """Drop what is known of an earlier box of this name: a deploy would refuse the new one as changed hardware."""
    (FACTS / f"{name}.json").unlink(missing_ok=True)


def start(settings: Settings, box: state.Box) -> bool:
    """Boot it unless it is up, and wait until it answers; whether it was started now."""
    root = rootfs.root(settings, box.name)
    was_up = bool(nspawn.keepers(root))
    if not was_up:
        nspawn.cut_power(settings, box.name, root)  # what a crash of its systemd-nspawn left running
        nspawn.start(settings, box.name, root)
    box.nspawn, box.pid = nspawn.wait_ready(box.name, box.address, root)
    return not was_up


def start_again(settings: Settings, name: str) -> state.Box:
    lab = state.load(settings)
    box = lab.box(name)
    disk = rootfs.directory(settings, name)
    if not (disk / "base").is_symlink():
        raise LabError(f"{name} has no disk", f"Make it anew: python -m lab up {len(lab.boxes)}")
    prepare(settings, box, (disk / "base").readlink())
    start(settings, box)
    state.save(settings, lab)
    return box


def kill(settings: Settings, name: str) -> None:
    """A power cut: nothing is asked to end, the disk stays as it is."""
    lab = state.load(settings)
    box = lab.box(name)
    if not nspawn.keepers(rootfs.root(settings, name)):
        raise LabError(f"{name} is off already", f"Start it: python -m lab start {name}")
    nspawn.cut_power(settings, name, rootfs.root(settings, name))
    rootfs.unmount(rootfs.directory(settings, name))
    nspawn.clean(settings, name)
    box.pid = box.nspawn = None
    state.save(settings, lab)


def is_up(settings: Settings, name: str) -> bool:
    found = nspawn.running(rootfs.root(settings, name))
    return found is not None and init_of(found) is not None


def names_on_disk(settings: Settings) -> list[str]:
    if not settings.boxes.is_dir():
        return []
    names = (path.name for path in settings.boxes.iterdir() if path.name.startswith("lab-"))
    return sorted(names, key=lambda name: int(name.partition("-")[2]))


def on_disk(settings: Settings) -> list[state.Box]:
    """The boxes that have a disk and a topology: what is known of them without lab.json."""
    return [
        state.Box(name, settings.box_address(name), topology_file(settings, name).read_text() or None)
        for name in names_on_disk(settings)
        if topology_file(settings, name).exists()
    ]


def host_keys(settings: Settings) -> dict[str, str]:
    return {name: rootfs.host_key(settings, name) for name in names_on_disk(settings)}


def topology_file(settings: Settings, name: str) -> Path:
    return rootfs.directory(settings, name) / "topology"
