"""The CUDA toolkit and what else the stacks need, by apt."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from pyinfra.api.operation import operation

from gpufleet.toolkit import distro, is_of_toolkit, keeps_off
from operations.deployment import Commands, Deployment


@operation()
def packages(box: Deployment) -> Commands:
    """
    Install the apt packages that the box lacks; NVIDIA's repository, its key pinned, when the toolkit is among them.
    What was installed of a toolkit is held, and unattended-upgrades kept off it and the driver.

    + box: the deployment of this box

    **Example:**

    .. code:: python

        toolkit.packages(name="Toolkit and packages", box=box)
    """
    missing = box.changes.packages
    if not missing and not box.changes.apt:
        box.host.noop("all packages are installed")
        return
    host = box.plan.settings.host
    spec = {
        "packages": missing,
        "repository": _repository(box) if any(is_of_toolkit(name) for name in missing) else None,
        "hold": host.hold_packages,
        "keep_off": keeps_off(box.plan),
    }
    yield from box.command(lambda: box.call("apt", spec, progress=partial(_goes_on, box)))


def _goes_on(box: Deployment, event: Mapping[str, Any]) -> None:
    if event.get("installing"):
        from operations import ahead  # most runs do not need it

        ahead.begin(box)


def _repository(box: Deployment) -> dict[str, str]:
    """NVIDIA's repository for the box's distribution, or the owner's mirror of it."""
    mirrors, name = box.plan.settings.mirrors, distro(box.plan.facts["os"])
    return {
        "name": "gpufleet-cuda",
        "url": mirrors.cuda.replace("{distro}", name),
        "key_url": mirrors.cuda_key.replace("{distro}", name),
        "fingerprint": mirrors.cuda_key_fingerprint,
    }
