"""Rules about `host.models`: the folder, on another disk of the box, that models are to lie in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpufleet.plan import BoxPlan
from gpufleet.room import MODELS
from gpufleet.rules.base import Said, rule

# Services have a /home, /root, /run/user, /tmp and /var/tmp of their own or none (files/templates); what is below the
# others is gone at the next boot, or no disk.
HIDDEN = ("/home", "/root", "/tmp", "/var/tmp", "/run", "/dev", "/proc", "/sys", "/opt/gpufleet")  # noqa: S108
NO_LINKS = ("vfat", "msdos", "exfat")  # file systems in which a file has one name; of others the box tells at the step


def _place(plan: BoxPlan) -> Mapping[str, Any]:
    """What the look told of the folder; nothing where it is not known, or none is wanted."""
    return (plan.facts.get("places") or {}).get(plan.settings.host.models) or {}


@rule(
    "GF620",
    "models-folder-hidden",
    level="error",
    source="services see nothing below these: ProtectHome, PrivateTmp",
    remedy="A folder of another place, such as /srv/models.",
)
def models_folder_hidden(plan: BoxPlan) -> Said:
    """`host.models` is, or leads, below `/home`, `/root`, `/tmp` or the like, of which services see nothing, or below a
    place that a reboot empties; or below `/opt/gpufleet` itself."""
    wanted = plan.settings.host.models
    for path in dict.fromkeys([wanted, _place(plan).get("real")] if wanted else []):
        if path and any(path == each or path.startswith(each + "/") for each in HIDDEN):
            leads = "" if path == wanted else f" leads to {path}, and"
            yield (
                f"host.models: {wanted}{leads} cannot hold models: services do not see it, or it does not last",
                "give a folder of another place, such as /srv/models",
            )
            return


@rule(
    "GF621",
    "models-folder-missing",
    level="error",
    source="files written below a mount point that is not mounted fill the system's own disk, and are hidden later",
    remedy="Mount the disk, and make the folder on it.",
)
def models_folder_missing(plan: BoxPlan) -> Said:
    """The folder of `host.models` is not on the box, or the disk that /etc/fstab has above it is not mounted."""
    wanted, found = plan.settings.host.models, _place(plan)
    if found.get("unmounted"):
        yield f"host.models: {found['unmounted']} is in /etc/fstab and not mounted", f"mount {found['unmounted']}"
    elif found and not found["exists"]:
        yield f"host.models: there is no folder {wanted}", f"mkdir -p {wanted}, on the disk that you mean"


@rule(
    "GF622",
    "models-elsewhere",
    level="error",
    source="models that are served are not moved under a running service, and another's files are not ours to free",
    remedy="Move the models: docs/how-to/models-on-another-disk.md.",
)
def models_elsewhere(plan: BoxPlan) -> Said:
    """`host.models` names another folder than the one that models lie in now, or one that holds what is not gpufleet's.
    Nothing is moved by a deploy."""
    wanted, found = plan.settings.host.models, _place(plan)
    home = plan.facts.get("models_home")
    if not wanted or not home or home["link"] == wanted:
        return
    if ((plan.facts.get("disks") or {}).get(MODELS) or {}).get("mount") == MODELS:
        yield f"a disk is mounted at {MODELS}", "leave host.models out: models lie on that disk"
    elif not home["empty"]:
        now = f"{MODELS} is a link to {home['link']}" if home["link"] else f"{MODELS} holds models"
        aside = "" if home["link"] else f"mv {MODELS} {MODELS}.old && "
        move = f"cp -a {MODELS}/. {wanted}/ && {aside}ln -sfn {wanted} {MODELS}"
        yield f"{now}, and host.models is {wanted}", f"{move}, then deploy again; or leave host.models out"
    elif found.get("foreign"):
        yield (
            f"host.models: {wanted} holds what is not gpufleet's ({found['foreign']})",
            f"give a folder of its own, such as {wanted}/gpufleet",
        )


@rule(
    "GF623",
    "models-folder-unfit",
    level="error",
    source="a model is made of second names of the files in its store; services run as the user gpufleet",
    remedy="A file system with hard links (ext4, xfs, btrfs); `chmod o+x` for folders on the way.",
)
def models_folder_unfit(plan: BoxPlan) -> Said:
    """The file system of `host.models` gives a file one name only, or a folder on the way to it is closed to the
    services' user."""
    wanted, found = plan.settings.host.models, _place(plan)
    kind = ((plan.facts.get("disks") or {}).get(wanted) or {}).get("filesystem") if found.get("exists") else None
    if kind in NO_LINKS:
        yield f"host.models: {wanted} is on {kind}, where a file has one name only", "use ext4, xfs or btrfs"
    if found.get("closed"):
        yield f"host.models: {found['closed']} is closed to the user gpufleet", f"chmod o+x {found['closed']}"
