"""The CUDA toolkit and what else the stacks need, by apt."""

from __future__ import annotations

from pyinfra.api.operation import operation

from gpufleet.toolkit import distro
from operations.deployment import Commands, Deployment


@operation()
def packages(box: Deployment) -> Commands:
    """
    Install the apt packages that the box lacks; NVIDIA's repository, its key pinned, when the toolkit is among them.

    + box: the deployment of this box

    **Example:**

    .. code:: python

        toolkit.packages(name="Toolkit and packages", box=box)
    """
    missing = box.changes.packages
    if not missing:
        box.host.noop("all packages are installed")
        return
    mirrors, name = box.plan.settings.mirrors, distro(box.plan.facts["os"])
    repository = {
        "name": "gpufleet-cuda",
        "url": mirrors.cuda.replace("{distro}", name),
        "key_url": mirrors.cuda_key.replace("{distro}", name),
        "fingerprint": mirrors.cuda_key_fingerprint,
    }
    wants_toolkit = any(package.startswith("cuda-toolkit-") for package in missing)
    spec = {"packages": missing, "repository": repository if wants_toolkit else None}
    yield from box.command(lambda: box.call("apt", spec))
