"""The settings an owner may write, in any layer: group_data files, a box's own data, `--data`.

What `#:` says of a setting is its row in docs/reference/settings.md (`python -m gpufleet.reference`): what it means,
then its default where the code has none, then an example. Links are as seen from that page.
"""

from __future__ import annotations

import posixpath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gpufleet.schema import AbsolutePath, Args, Data, Env, Name, OneLine, Url, address, worded

Toolkit = Annotated[str, worded(r"^(none|\d+-\d+)$", "a version of CUDA such as 12-9, or none")]
Port = Annotated[int, Field(ge=1, le=65535)]
# More than any box has or can use; what is beyond is a slip, and would take for ever to plan.
Gpus = Annotated[int, Field(ge=1, le=1024)]
Instances = Annotated[int, Field(ge=1, le=256)]
Streams = Annotated[int, Field(ge=1, le=4096)]
GitMirror = Annotated[
    str,
    worded(
        r"^(https?|file)://[A-Za-z0-9._:\[\]/~+-]*\{path\}(\.git)?$",
        "an address that ends in {path}, such as http://192.168.1.5/git/{path}",
    ),
    AfterValidator(address),
]
FileMirror = Annotated[
    str,
    worded(
        r"^https?://[A-Za-z0-9._:\[\]-]+/[A-Za-z0-9._/~+-]*\{filename\}$",
        "an address that ends in {filename}, such as http://192.168.1.5/files/{filename}",
    ),
    AfterValidator(address),
]
ModelMirror = Annotated[
    str,
    worded(
        r"^https?://[A-Za-z0-9._:\[\]-]+/[A-Za-z0-9._/~+-]*\{path\}$",
        "an address that ends in {path}, such as http://192.168.1.5/models/{path}",
    ),
]
# Of boxes.
Share = (
    Annotated[str, worded(r"^([1-9]\d?|100)%$", "a share from 1% to 100%, or a count")] | Annotated[int, Field(ge=1)]
)
Fingerprint = Annotated[
    str,
    worded(r"^[0-9A-Fa-f ]{40,60}$", "the fingerprint of a key: 40 digits of 0-9 and A-F, spaces between them or not"),
]


def folder(path: str) -> str:
    """Raises ValueError for a path with `..` in it; `//` and a `/` at the end go."""
    if ".." in path.split("/"):
        raise ValueError("has `..` in it: give the path itself")
    return posixpath.normpath("/" + path.lstrip("/"))


Folder = Annotated[AbsolutePath, AfterValidator(folder)]
Watts = Annotated[int, Field(ge=1, le=10_000)]
Governor = Annotated[str, worded(r"^[a-z][a-z_]{0,15}$", "a governor of the kernel's, such as performance")]


def _of_the_owner(unit: str) -> str:
    if unit.startswith("gpufleet-"):
        raise ValueError("is a unit of gpufleet's own; take its instance out of `serve`")
    return unit


# A service as systemd names it.
OwnersUnit = Annotated[
    str,
    worded(
        r"^[A-Za-z0-9_][A-Za-z0-9:_.\\-]*(@[A-Za-z0-9:_.\\-]+)?\.service$",
        "the whole name of a service, such as vllm.service or vllm@1.service",
        longest=255,
    ),
    AfterValidator(_of_the_owner),
]
Swappiness = Annotated[int, Field(ge=0, le=200)]
Keep = Annotated[int, Field(ge=2, le=100)]  # with fewer there is no way back


class Serve(Data):
    """One model to be served on a box."""

    model: Name  #: a page of `files/models`. Example: "qwen3-0.6b"
    name: Name | None = None  #: of the instance. Default: the model's. Example: "second"
    stack: Name | None = None  #: the engine for this one. Default: the setting `stack`. Example: "vllm-0.27.1-cpu"
    #: of its stack, in place of those of the setting. Default: the setting of that name. Example: ["lmcache"]
    options: list[Name] | None = None
    #: what it listens on. Default: the one it has on the box; else the first free one from the model's `port` on, or
    #: from 8000. Example: 8080
    port: Port | None = None
    #: GPUs of each of its instances. Default: the setting of that name. Example: 1
    tensor_parallel_size: Gpus | None = None
    instances: Instances | None = None  #: how many of it. Default: the setting of that name. Example: 2
    #: requests at once for which CUDA graphs are captured. Default: the setting of that name. Example: 3
    streams: Streams | None = None
    args: Args = {}  #: the engine's flags for this one. Example: {"max-num-seqs": 4}
    env: Env = {}  #: the engine's variables for this one. Example: {"VLLM_LOGGING_LEVEL": "DEBUG"}
    #: services of yours whose [place it takes](on-the-box.md#units-of-yours). Example: ["vllm.service"]
    replaces: list[OwnersUnit] = []


class Host(Data):
    """What concerns the box itself."""

    #: the CUDA toolkit to install. Default: what the stack names; else for the box's oldest card: `13-0` from compute
    #: capability 7.5 on, `12-9` below; none without GPU. Example: {"toolkit": "12-9"}
    toolkit: Toolkit | None = None
    #: whether gpufleet may use apt; if not, what is missing is refused by name. Example: {"install_packages": False}
    install_packages: bool = True
    #: whether the toolkit's packages that gpufleet installed are held, and [unattended-upgrades kept
    #: off](on-the-box.md#apt) driver, kernel and toolkit; `False` undoes both. Nothing is done where
    #: `install_packages` is `False`. Example: {"hold_packages": False}
    hold_packages: bool = True
    # What follows is left as the box has it where it is None, and applied again at each boot where it is not.
    #: persistence mode of all cards. Default: as it is. Example: {"persistence_mode": True}
    persistence_mode: bool | None = None
    #: watts for all cards; or by a card's name, the end of its name, or its UUID. The UUID goes before a name, the
    #: longer name before the shorter. Default: as it is. Example: {"power_limit": {"RTX 2080 Ti": 200}}
    power_limit: Watts | dict[OneLine, Watts] | None = None
    #: CPU governor of all cores. Default: as it is. Example: {"governor": "performance"}
    governor: Governor | None = None
    #: `vm.overcommit_memory`. Default: as it is. Example: {"overcommit_memory": 1}
    overcommit_memory: Literal[0, 1, 2] | None = None
    swappiness: Swappiness | None = None  #: `vm.swappiness`. Default: as it is. Example: {"swappiness": 10}
    #: whether the box's own name gets a line in /etc/hosts where none has it. Without one engines wait 20 s at each
    #: start for a name that no server knows. Example: {"hosts_entry": False}
    hosts_entry: bool = True
    #: a folder of the box, on another disk, that models lie in: `/opt/gpufleet/models` becomes a link to it. It must be
    #: there, mounted, and hold nothing of others; models are not moved ([how to](../how-to/models-on-another-disk.md)).
    #: Default: `/opt/gpufleet/models` itself. Example: {"models": "/mnt/big/gpufleet"}
    models: Folder | None = None


class Mirrors(Data):
    """Where boxes fetch from; null is the client's own default."""

    #: the Python index. Default: [what pip and uv are set to](../how-to/mirrors-and-offline.md#which-index).
    #: Example: "http://192.168.1.5/simple/"
    pypi: Url | None = None
    #: a further index, for PyTorch's own builds. Default: the stack's `torch_index`.
    #: Example: "http://192.168.1.5/torch/cpu"
    torch: Url | None = None
    #: in place of the host of a git repository; `{path}` becomes `owner/name`. Default: the address of the stack's
    #: page. Example: "http://192.168.1.5/git/{path}"
    git: GitMirror | None = None
    #: in place of the address of a wheel that no index has; `{filename}` becomes its file name. Default: the address of
    #: the stack's page. Example: "http://192.168.1.5/files/{filename}"
    files: FileMirror | None = None
    #: in place of the host of a model's files; `{path}` becomes the path of `source.http`, `org/model`. Default: the
    #: address of the model's page. Example: "http://192.168.1.5/models/{path}"
    models: ModelMirror | None = None
    #: the hub of models, or a mirror of it; stronger than the variable `HF_ENDPOINT` of the controller. Default:
    #: `HF_ENDPOINT`, else the hub itself. Example: "https://mirror.example.org"
    hub: Url | None = None
    #: NVIDIA's apt repository; `{distro}` becomes `debian12`, `ubuntu2404` …
    #: Example: "http://192.168.1.5/cuda/{distro}/x86_64/"
    cuda: Url = "https://developer.download.nvidia.com/compute/cuda/repos/{distro}/x86_64/"
    #: where the key of that repository is. Example: "http://192.168.1.5/cuda/3bf863cc.pub"
    cuda_key: Url = "https://developer.download.nvidia.com/compute/cuda/repos/{distro}/x86_64/3bf863cc.pub"
    #: the only key that is accepted
    cuda_key_fingerprint: Fingerprint = "EB693B3035CD5710E231E123A4B469963BF863CC"


class Fetch(Data):
    """How what is installed comes to the boxes: from outside once, then over the LAN."""

    #: who fetches from outside: the controller; or the boxes, each file by one of them. Example: "boxes"
    by: Literal["controller", "boxes"] = "controller"
    peers: bool = True  #: boxes get from each other what one of them has. Example: False
    #: nothing is fetched from outside: what the controller's store lacks is an error. Example: True
    offline: bool = False


class Expect(Data):
    """Hardware the owner knows to be there."""

    #: how many NVLinks two bridged GPUs have; in a mesh or a cube, the best pair of each GPU, or all links of a GPU
    #: (DGX-1: `6`); 0 for no bridge at all. Default: not checked. Example: 4
    nvlink: Annotated[int, Field(ge=0)] | None = None
    gpus: Annotated[int, Field(ge=0)] | None = None  #: how many GPUs. Default: not checked. Example: 2


class Rollout(Data):
    """How a run over several boxes goes."""

    #: what it costs when a rule refuses this box: `"stop"`, the whole run, before the first change on any box;
    #: `"leave out"`, this box only: the others are deployed, and the run ends with 1.
    #: Example: {"on_refusal": "leave out"}
    on_refusal: Literal["stop", "leave out"] = "stop"
    #: tokens per second that an instance must reach, as a part of the median of the box's own last activations; `0`:
    #: none. See [speed](gate.md#speed). Default: `0.5` on GPUs, none on CPUs. Example: {"speed_floor": 0.8}
    speed_floor: Annotated[float, Field(ge=0, le=1)] | None = None
    #: tokens at most of the [long prompt](gate.md#what-is-asked) that an instance must answer before it counts as
    #: serving; `0`: none is asked. Example: {"gate_context": 100000}
    gate_context: Annotated[int, Field(ge=0, le=1 << 20)] = 16384
    #: how many releases of each instance stay on a box, the one in use and the one before included.
    #: Example: {"keep": 5}
    keep: Keep = 3
    # These concern the whole run, and have to be the same for all its boxes.
    canary: bool = True  #: one box of each kind is switched before the others. Example: False
    #: how many boxes are switched at a time after that: a count, or a share of those that serve and are to be switched.
    #: Example: 2
    batch: Share = "25%"
    #: how many of the boxes that serve one model may be down at once: a count, or a share of them; at least one.
    #: Example: 1
    max_unavailable: Share = "25%"
    #: after a failed box: `"stop"`; or `"put back all"`: those that were switched in this run go back, too.
    #: Example: "put back all"
    on_failure: Literal["stop", "put back all"] = "stop"


class Settings(Data):
    """All of it. A layer holds some of these keys."""

    #: what a box serves: names of models, or [entries](#a-serve-entry); an instance on the box that is not in it is
    #: retired. Example: ["qwen3-0.6b"]
    serve: list[Name | Serve] = []
    #: the engine for entries that name none: a page of `files/stacks`. Default: the one that is [made for the
    #: card](stacks.md#those-that-come-along). Example: "vllm-0.27.1-cpu"
    stack: Name | None = None
    #: what of the stack is switched on, see [options](stacks.md#options). Example: ["native-offloading"]
    options: list[Name] = []
    #: the engine's flags for every instance; `None` leaves a flag out. Example: {"max-model-len": 8192}
    serve_args: Args = {}
    #: the engine's variables for every instance; values are text. Example: {"VLLM_LOGGING_LEVEL": "DEBUG"}
    serve_env: Env = {}
    #: GPUs of each instance; means nothing to a stack for CPUs. Default: the fewest that hold the model. Example: 2
    tensor_parallel_size: Gpus | None = None
    #: how many instances each entry makes. Default: as many as the box holds, when there is one entry; else `1`.
    #: Example: 2
    instances: Instances | None = None
    #: requests at once for which CUDA graphs are captured. Default: the model's. Example: 3
    streams: Streams | None = None
    expect: Expect = Expect()  #: [hardware you know to be there](#expect). Example: {"gpus": 2}
    #: [rules](../rules.md) you know better than, by code or name; `gpufleet plan` says what they would have found.
    #: Example: ["GF603", "disk-space"]
    silence: list[Name] = []
    host: Host = Host()  #: [the box itself](#host). Example: {"toolkit": "none"}
    #: [where boxes fetch from](#mirrors). Example: {"pypi": "http://192.168.1.5/simple/"}
    mirrors: Mirrors = Mirrors()
    fetch: Fetch = Fetch()  #: [how what is installed comes to the boxes](#fetch). Example: {"by": "boxes"}
    #: [how a run over several boxes goes](#rollout). Example: {"on_refusal": "leave out"}
    rollout: Rollout = Rollout()
