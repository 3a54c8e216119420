"""The settings an owner may write, in any layer: group_data files, a box's own data, `--data`."""

from __future__ import annotations

import posixpath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from gpufleet.schema import AbsolutePath, Args, Data, Env, Name, OneLine, Url, address

Toolkit = Annotated[str, StringConstraints(pattern=r"^(none|\d+-\d+)$")]
Port = Annotated[int, Field(ge=1, le=65535)]
# More than any box has or can use; what is beyond is a slip, and would take for ever to plan.
Gpus = Annotated[int, Field(ge=1, le=1024)]
Instances = Annotated[int, Field(ge=1, le=256)]
Streams = Annotated[int, Field(ge=1, le=4096)]
GitMirror = Annotated[
    str,
    StringConstraints(pattern=r"^(https?|file)://[A-Za-z0-9._:\[\]/~+-]*\{path\}(\.git)?$"),
    AfterValidator(address),
]
FileMirror = Annotated[
    str,
    StringConstraints(pattern=r"^https?://[A-Za-z0-9._:\[\]-]+/[A-Za-z0-9._/~+-]*\{filename\}$"),
    AfterValidator(address),
]
ModelMirror = Annotated[str, StringConstraints(pattern=r"^https?://[A-Za-z0-9._:\[\]-]+/[A-Za-z0-9._/~+-]*\{path\}$")]
Share = Annotated[str, StringConstraints(pattern=r"^([1-9]\d?|100)%$")] | Annotated[int, Field(ge=1)]  # of boxes
Fingerprint = Annotated[str, StringConstraints(pattern=r"^[0-9A-Fa-f ]{40,60}$")]


def folder(path: str) -> str:
    """Raises ValueError for a path with `..` in it; `//` and a `/` at the end go."""
    if ".." in path.split("/"):
        raise ValueError("has `..` in it: give the path itself")
    return posixpath.normpath("/" + path.lstrip("/"))


Folder = Annotated[AbsolutePath, AfterValidator(folder)]
Watts = Annotated[int, Field(ge=1, le=10_000)]
Governor = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z_]{0,15}$")]


def _of_the_owner(unit: str) -> str:
    if unit.startswith("gpufleet-"):
        raise ValueError("is a unit of gpufleet's own; take its instance out of `serve`")
    return unit


# A service as systemd names it.
OwnersUnit = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9:_.\\-]*(@[A-Za-z0-9:_.\\-]+)?\.service$", max_length=255),
    AfterValidator(_of_the_owner),
]
Swappiness = Annotated[int, Field(ge=0, le=200)]
Keep = Annotated[int, Field(ge=2, le=100)]  # with fewer there is no way back


class Serve(Data):
    """One model to be served on a box."""

    model: Name
    name: Name | None = None  # of the instance; default: the model's
    stack: Name | None = None
    options: list[Name] | None = None  # of its stack; default: the setting of that name
    port: Port | None = None
    tensor_parallel_size: Gpus | None = None
    instances: Instances | None = None
    streams: Streams | None = None
    args: Args = {}
    env: Env = {}
    replaces: list[OwnersUnit] = []  # units of the owner's whose place it takes


class Host(Data):
    """What concerns the box itself."""

    toolkit: Toolkit | None = None  # "13-0", "none"; default: what the GPU and the stack ask for
    install_packages: bool = True  # False: apt is the owner's; what is missing is then refused by name
    hold_packages: bool = True  # hold the toolkit's, keep unattended-upgrades off it and the driver; False: undo that
    # What follows is left as the box has it where it is None, and applied again at each boot where it is not.
    persistence_mode: bool | None = None
    power_limit: Watts | dict[OneLine, Watts] | None = None  # of all cards; or by a card's name or UUID
    governor: Governor | None = None
    overcommit_memory: Literal[0, 1, 2] | None = None
    swappiness: Swappiness | None = None
    hosts_entry: bool = True  # the box's own name in /etc/hosts, where no line has it
    models: Folder | None = None  # a folder of the box, on another disk: /opt/gpufleet/models becomes a link to it


class Mirrors(Data):
    """Where boxes fetch from; null is the client's own default."""

    pypi: Url | None = None
    torch: Url | None = None
    git: GitMirror | None = None  # in place of a git host: `{path}` becomes `owner/name`
    files: FileMirror | None = None  # in place of a wheel's own address: `{filename}` becomes its file name
    models: ModelMirror | None = None  # in place of a model's host: `{path}` becomes the path of its page's address
    hub: Url | None = None  # of models, as HF_ENDPOINT is; None: what that says, else the hub itself
    cuda: Url = "https://developer.download.nvidia.com/compute/cuda/repos/{distro}/x86_64/"
    cuda_key: Url = "https://developer.download.nvidia.com/compute/cuda/repos/{distro}/x86_64/3bf863cc.pub"
    cuda_key_fingerprint: Fingerprint = "EB693B3035CD5710E231E123A4B469963BF863CC"


class Fetch(Data):
    """How what is installed comes to the boxes: from outside once, then over the LAN."""

    by: Literal["controller", "boxes"] = "controller"  # who fetches from outside
    peers: bool = True  # boxes get from each other what one of them has
    offline: bool = False  # nothing is fetched from outside: what the controller's store lacks is an error


class Expect(Data):
    """Hardware the owner knows to be there."""

    nvlink: Annotated[int, Field(ge=0)] | None = None  # links between two bridged GPUs
    gpus: Annotated[int, Field(ge=0)] | None = None


class Rollout(Data):
    """How a run over several boxes goes.

    + speed_floor: of the median of a box's own history; 0: none; default: 0.5 on GPUs, 0 on CPUs
    + gate_context: tokens at most of the prompt near the context limit; 0: none is asked
    """

    on_refusal: Literal["stop", "leave out"] = "stop"  # what an error of this box's plan costs: the run, or the box
    speed_floor: Annotated[float, Field(ge=0, le=1)] | None = None
    gate_context: Annotated[int, Field(ge=0, le=1 << 20)] = 16384
    keep: Keep = 3  # releases of each instance that stay on the box, the one in use included
    # These concern the whole run, and have to be the same for all its boxes.
    canary: bool = True  # one box of each kind goes first
    batch: Share = "25%"  # then so many of the boxes that serve
    max_unavailable: Share = "25%"  # of the boxes that serve one model, so many may be down at once; at least 1
    on_failure: Literal["stop", "put back all"] = "stop"  # whether boxes that are switched already go back, too


class Settings(Data):
    """All of it. A layer holds some of these keys."""

    serve: list[Name | Serve] = []
    stack: Name | None = None
    options: list[Name] = []  # what of the stack is switched on
    serve_args: Args = {}
    serve_env: Env = {}
    tensor_parallel_size: Gpus | None = None  # GPUs of an instance
    instances: Instances | None = None  # of each entry; default: as many as the box holds
    streams: Streams | None = None  # requests at once that CUDA graphs are captured for
    expect: Expect = Expect()
    silence: list[Name] = []
    host: Host = Host()
    mirrors: Mirrors = Mirrors()
    fetch: Fetch = Fetch()
    rollout: Rollout = Rollout()
