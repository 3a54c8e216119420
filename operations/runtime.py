"""Runtimes: the patched wheels are made once on the controller, sent, and installed beside what is there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from pyinfra.api.operation import operation

from gpufleet import wheel
from gpufleet.errors import BoxError
from gpufleet.patches import PatchError
from gpufleet.runtime import Runtime
from gpufleet.stacks import Stack
from gpufleet.wheel import Repacked, WheelError
from operations.deployment import Commands, Deployment, build_lock

BLOCK = 256 * 1024


@operation()
def installed(box: Deployment) -> Commands:
    """
    Install each runtime of the plan that is not complete on the box.

    + box: the deployment of this box

    **Example:**

    .. code:: python

        runtime.installed(name="Runtimes", box=box)
    """
    yield from box.each(box.changes.runtimes, "all runtimes are complete", partial(install, box))


def install(box: Deployment, runtime: Runtime) -> None:
    """Install one runtime; wheels go over only when the box asks for them. Raises BoxError."""
    stack = runtime.stack
    if not stack.installable:
        raise BoxError(box.host.name, f"{stack.name} has no lock, so nothing can be installed", "set another `stack`")
    with build_lock:
        wheels = {made.path.name: made for made in _wheels(box, stack)}
    mirrors = box.plan.settings.mirrors
    spec: dict[str, Any] = {
        "name": runtime.name,
        "python": f"python{runtime.python}",
        "uv": stack.uv.model_dump() if stack.uv else None,
        "lock": stack.lock_text(runtime.python),
        "wheels": [{"name": name, "sha256": made.sha256} for name, made in wheels.items()],
        "index": {"pypi": mirrors.pypi, "torch": mirrors.torch or stack.torch_index},
        "instances": [item.name for item in box.plan.instances if item.runtime.name == runtime.name],
        "verify": stack.verify,
        "env": stack.env,
        "facts": {"stack": stack.name, "runtime": runtime.name, "wheels": {n: m.sha256 for n, m in wheels.items()}},
    }
    for missing in box.call("runtime", spec).get("missing", []):
        made = wheels[missing["name"]]
        size = made.path.stat().st_size
        box.host.log(f"sending {made.path.name} ({size >> 20} MiB)")
        file = {"filename": made.path.name, "sha256": made.sha256, "size": size, "offset": 0}
        box.call("receive", file, payload=_blocks(made.path))
    if box.call("runtime", spec).get("missing"):
        raise BoxError(box.host.name, f"{runtime.name}: wheels that were sent are not there", "deploy again")


def _wheels(box: Deployment, stack: Stack) -> list[Repacked]:
    """The stack's patched wheels, made on this controller or found in its cache."""
    try:
        return [
            wheel.repack(wheel.fetch(entry, cache()), entry, stack.files / "patches", cache()) for entry in stack.wheels
        ]
    except (WheelError, PatchError, OSError, BadZipFile) as error:
        raise BoxError(
            box.host.name, f"{stack.name} could not be made: {error}", "mend that on the controller"
        ) from error


def cache() -> Path:
    """Where this controller keeps wheels: fetched once, patched once."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpufleet" / "wheels"


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as handle:
        while block := handle.read(BLOCK):
            yield block
