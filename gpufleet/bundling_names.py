"""Who and what a bundle must not name: the box, its fleet, the owner and his controller. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpufleet import anonymity_forms as forms
from gpufleet import paths
from gpufleet.anonymity_text import Disguise
from gpufleet.fleet import Fleet
from gpufleet.instance import Instance
from gpufleet.masking import is_secret
from gpufleet.plan import BoxPlan

PASSWORDS = ("_sudo_password", "ssh_password", "ssh_key_password")
# Who gives variables that are no secret: the product's own pages, which are public, and what follows from the plan.
PUBLIC = ("stack ", "model ", "computed", "default")
# Variables of engines and libraries, whose values an owner gives and a reader needs; any other may hold anything.
OF_ENGINES = (
    *("VLLM_", "LMDEPLOY_", "TM_", "NCCL_", "CUDA_", "TORCH", "PYTORCH_", "OMP_", "MKL_", "FLASHINFER_", "FLASH_"),
    *("TRITON_", "TOKENIZERS_", "RAY_", "GLOO_", "LMCACHE_", "HF_HUB_", "SAFETENSORS_", "PYTHON", "MAX_JOBS"),
)


@dataclass(frozen=True)
class Controller:
    """Who calls, and where. + users: login names; + hosts: names of this machine; + secrets: passwords of this call"""

    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


def acquaint(
    disguise: Disguise,
    fleet: Fleet,
    box: str,
    facts: Mapping[str, Any] | None,
    evidence: Mapping[str, Any] | None,
    plan: BoxPlan | None,
    controller: Controller,
) -> None:
    """Tell the disguise all names that are known, the box itself first, so that it is `box-1`."""
    identity = (evidence or {}).get("identity") or {}
    disguise.secret(*controller.secrets, *secrets_of(fleet, plan))
    # its names for itself and the fleet's name for it are one box
    named = {str((facts or fleet.facts.get(box) or {}).get("hostname") or "")}
    named |= {name for name in identity.get("hosts") or [] if name.split(".")[0] in named}
    disguise.know("box", box, *sorted(named - {""} - forms.COMMON))
    for name in [box, *(name for name in fleet.boxes if name != box)]:
        _box(disguise, fleet, name, (facts if name == box else None) or fleet.facts.get(name) or {})
    for kind, key in (("host", "hosts"), ("host", "domains"), ("user", "users"), ("person", "people"), ("mac", "macs")):
        for text in identity.get(key) or []:
            if not forms.is_address(text):
                disguise.know(kind, text)
    for name in identity.get("hosts") or []:
        if name.count(".") >= 2 and not forms.is_address(name):  # a shorter domain may be a name that everybody has
            disguise.know("host", name.partition(".")[2])
    for kind, key in (("serial", "serials"), ("machine", "ids")):
        for text in identity.get(key) or []:
            disguise.know(kind, text, text.replace("-", ""))
    for user in controller.users:
        disguise.know("user", user)
    for host in controller.hosts:
        disguise.know("host", host, host.split(".")[0])
    own, public = hub_owners(fleet)
    disguise.public(*public)
    for owner in own:
        disguise.know("hub-user", owner)
    for digest in releases_of(facts or {}):
        disguise.know("release", digest)


def _box(disguise: Disguise, fleet: Fleet, name: str, facts: Mapping[str, Any]) -> None:
    """One box of the fleet: its names, its address, its login, its cards."""
    address = fleet.addresses[name]
    given = str(address.get("ssh_hostname") or "")
    hostname = str(facts.get("hostname") or "")
    disguise.know("box", name, *(text for text in (hostname, given) if text and not forms.is_address(text)))
    if forms.is_address(given):
        disguise.know("address", given)
    disguise.know("user", address.get("ssh_user"))
    if facts.get("machine_id"):
        disguise.know("machine", facts["machine_id"])
    for gpu in facts.get("gpus") or []:
        if gpu.get("uuid"):
            disguise.know(str(gpu["uuid"])[:3], gpu["uuid"])


def secrets_of(fleet: Fleet, plan: BoxPlan | None) -> list[str]:
    """Passwords of the inventory, and what an owner put into the environment or the flags of services as one."""
    found = [data.get(key) for data in fleet.addresses.values() for key in PASSWORDS]
    for instance in plan.instances if plan else ():
        found += _of_instance(instance)
    return [str(value) for value in found if value]


def _of_instance(instance: Instance) -> Iterable[Any]:
    for key, value in instance.env.items():
        public = (instance.variables.source(key) or "").startswith(PUBLIC) or key.startswith(OF_ENGINES)
        if is_secret(key, anywhere=True) or not public:
            yield value
    for key, value in instance.args.items():
        if is_secret(key, anywhere=True) and not isinstance(value, bool):
            yield from value if isinstance(value, list) else [value]


def releases_of(facts: Mapping[str, Any]) -> list[str]:
    """Digests of the releases on a box. They are hashes of files in which a secret may be, if an owner put it there."""
    found: dict[str, None] = {}
    for item in (facts.get("instances") or {}).values():
        found |= dict.fromkeys([item.get("current"), item.get("gated"), *(item.get("releases") or [])])
    return [digest for digest in found if digest]


def hub_owners(fleet: Fleet) -> tuple[list[str], list[str]]:
    """(logins of the hub that the owner's own pages name, those of the product's pages, which are public)"""
    product = paths.product_files().resolve()
    owners: list[str] = []
    public: set[str] = set()
    for model in fleet.models.values():
        owner = (model.source.hub or "").partition("/")[0]
        own = product not in model.path.resolve().parents
        if owner and own:
            owners.append(owner)
        elif owner:
            public.add(owner)
    return [owner for owner in dict.fromkeys(owners) if owner not in public], sorted(public)
