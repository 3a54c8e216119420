"""What the core's tests build on: facts of boxes, a folder of an owner, small catalogues."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from gpufleet import catalogue, paths
from gpufleet.catalogue import Catalogue
from gpufleet.models import Model
from gpufleet.plan import Box, BoxPlan, plan_box
from gpufleet.stacks import Stack

SHA = "0" * 64

_FACTS: dict[str, Any] = {
    "schema": 2,
    "at": "2026-11-29T17:40:00Z",
    "hostname": "box",
    "hostname_resolves": True,
    "machine_id": None,
    "os": {
        "id": "debian",
        "version_id": "12",
        "codename": "bookworm",
        "arch": "x86_64",
        "kernel": "6.1.0-41-amd64",
        "glibc": "2.36",
    },
    "python": {"version": "3.11.2", "executable": "/usr/bin/python3", "headers": True},
    "cpu": {"model": "a processor", "cores": 8, "threads": 16, "flags": ["avx2"], "numa_nodes": 1, "governor": None},
    "memory": {"total_mib": 64_000, "available_mib": 60_000, "swap_mib": 0},
    "overcommit_memory": 0,
    "disks": {
        path: {"free_mib": 100_000, "total_mib": 200_000, "filesystem": "ext4"}
        for path in ("/opt/gpufleet", "/", "/var")
    },
    "shm_mib": 32_000,
    "shm_free_mib": 32_000,
    "virtualization": None,
    "secure_boot": None,
    "clock": {"synchronized": True, "now": "2026-11-29T17:40:00Z"},
    "iommu": {"enabled": False, "passthrough": None, "acs": []},
    "driver": None,
    "nouveau": False,
    "gpus": [],
    "links": {},
    "ancestors": {},
    "p2p_read": {},
    "p2p_write": {},
    "xid": [],
    "kernel_log": True,
    "packages": {},
    "holds": [],
    "nvidia_packages": {},
    "nvidia_installer": False,
    "cuda_compat": [],
    "unattended_upgrades": {"enabled": False, "blacklist": []},
    "display_manager": None,
    "compilers": {"gcc": "12.2.0", "g++": "12.2.0"},
    "toolkits": {},
    "ports": {},
    "instances": {},
    "runtimes": {},
    "models": {},
    "user": {"exists": False},
    "lock": None,
    "errors": [],
}
_GPU: dict[str, Any] = {
    "name": "a card",
    "memory_mib": 22528,
    "memory_used_mib": 0,
    "display_active": False,
    "pcie": {"gen": 3, "gen_max": 3, "width": 16, "width_max": 16},
    "power": {"limit_w": 250, "default_w": 250, "min_w": 100, "max_w": 280},
    "persistence": True,
    "ecc": None,
    "mig": None,
    "nvlinks": [],
    "processes": [],
}


def cpu_facts(**more: Any) -> dict[str, Any]:
    """A bare Debian 12 box without GPU."""
    return {**copy.deepcopy(_FACTS), **more}


def gpu_facts(capability: tuple[int, int] = (7, 5), count: int = 2, link: str = "NV2", **more: Any) -> dict[str, Any]:
    """The same with `count` equal GPUs, every pair joined by `link`."""
    gpus = [
        {
            **copy.deepcopy(_GPU),
            "index": i,
            "uuid": f"GPU-{i}",
            "compute_capability": list(capability),
            "bus_id": f"00000000:{i + 1:02X}:00.0",
        }
        for i in range(count)
    ]
    links = {f"{a}-{b}": link for a in range(count) for b in range(count) if a < b}
    driver = {
        "version": "580.159.03",
        "cuda": "13.0",
        "module": "580.159.03",
        "flavour": "closed",
        "module_on_disk": "580.159.03",
    }
    return cpu_facts(gpus=gpus, links=links, driver=driver, **more)


def stack(name: str = "engine-cpu", **more: Any) -> Stack:
    """A stack without wheels of its own; its lock is a real one of the product."""
    data = {
        "schema": 1,
        "name": name,
        "title": "an engine",
        "engine": "vllm",
        "python": ["3.11"],
        "arch": ["cpu"],
        "apt": ["g++", "libnuma1"],
        "uv": {"version": "0.9.0", "sha256": SHA},
        "lock": "vllm-0.27.1-cpu",
        "env": {"VLLM_NO_USAGE_STATS": "1"},
        "args": {"dtype": "half", "enforce-eager": True},
        **more,
    }
    return Stack.model_validate(data).model_copy(update={"path": paths.product_files() / "stacks" / f"{name}.yaml"})


def model(name: str = "tiny", **more: Any) -> Model:
    """A model of one file."""
    data = {
        "schema": 1,
        "name": name,
        "title": "a model",
        "revision": "r1",
        "source": {"http": "http://192.0.2.1/tiny/r1/", "files": {"config.json": {"size": 5 << 20, "sha256": SHA}}},
        "served_name": name,
        "args": {"max-model-len": 512, "speculative-config": {"method": "mtp", "num_speculative_tokens": 1}},
        **more,
    }
    return Model.model_validate(data)


def plan(facts: dict[str, Any], data: dict[str, Any] | None = None, **more: Any) -> BoxPlan:
    """The plan of one box that serves `tiny` by `engine-cpu`, unless `data` says otherwise."""
    box = Box(
        "box-1", {"stack": "engine-cpu", "serve": ["tiny"], **(data or {})}, more.pop("groups", ()), "inventory/x.py"
    )
    stacks = Catalogue("stack", {item.name: item for item in more.pop("stacks", [stack()])})
    models = Catalogue("model", {item.name: item for item in more.pop("models", [model()])})
    return plan_box(box, facts, more.pop("layers", {}), stacks, models, **more)


def owner(root: Path, **pages: str) -> Path:
    """An owner's folder: `inventory__home="…"` becomes inventory/home.py."""
    for name, text in pages.items():
        path = root / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def product_stacks() -> Catalogue[Stack]:
    return catalogue.load(Stack, "stack", paths.stack_folders())
