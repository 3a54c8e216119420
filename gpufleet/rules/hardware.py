"""Rules about GPUs, driver, toolkit and links."""

from __future__ import annotations

from gpufleet.plan import BoxPlan
from gpufleet.rules.base import Said, rule
from gpufleet.toolkit import version
from gpufleet.traits import arch


@rule("toolkit-drops-arch", "error")
def toolkit_drops_arch(plan: BoxPlan) -> Said:
    """CUDA 13 compiles nothing below 7.5: `Unsupported gpu architecture 'compute_70'`."""
    if plan.toolkit and int(plan.toolkit.split("-")[0]) >= 13:
        for gpu in plan.facts.get("gpus") or []:
            if tuple(gpu["compute_capability"]) < (7, 5):
                yield (
                    f"CUDA {version(plan.toolkit)} does not compile for {gpu['name']} ({arch(gpu)})",
                    "set host.toolkit to 12-9 or 12-8",
                )
                return


@rule("toolkit-damaged", "warning")
def toolkit_damaged(plan: BoxPlan) -> Said:
    """The package is installed and its compiler is not there: apt thinks all is well."""
    name = f"cuda-toolkit-{plan.toolkit}"
    if plan.toolkit and plan.facts["packages"].get(name) and version(plan.toolkit) not in plan.facts["toolkits"]:
        yield (
            f"{name} is installed, but /usr/local/cuda-{version(plan.toolkit)}/bin/nvcc is not there",
            f"apt-get install --reinstall cuda-nvcc-{plan.toolkit} {name}",
        )


@rule("gpus-unreadable", "error")
def gpus_unreadable(plan: BoxPlan) -> Said:
    """A driver that is there but does not answer: such a box would be planned as one without GPUs."""
    if plan.facts.get("driver") and not plan.facts.get("gpus"):
        said = "; ".join(error["message"] for error in plan.facts.get("errors") or [] if error["source"] == "nvml")
        yield (
            f"there is an NVIDIA driver, but NVML shows no GPU ({said or 'no reason given'})",
            "run nvidia-smi on the box; a driver updated without a reboot needs one",
        )


@rule("stack-lacks-arch", "error")
def stack_lacks_arch(plan: BoxPlan) -> Said:
    """A wheel without a card's machine code dies with `no kernel image is available for execution`."""
    gpus = plan.facts.get("gpus") or []
    for instance in plan.instances:
        if "cpu" in instance.stack.arch:
            continue
        size = instance.args["tensor-parallel-size"]
        if len(instance.gpus) < size:
            yield (
                f"{instance.name} needs {size} GPUs, {len(instance.gpus)} are free",
                "lower tensor_parallel_size, serve fewer models here, or use a stack for CPUs",
            )
        for name in sorted({arch(gpus[index]) for index in instance.gpus} - set(instance.stack.arch)):
            yield (
                f"{instance.stack.name} has no kernels for {name}",
                f"use a stack for {name}; this one is for {', '.join(instance.stack.arch)}",
            )


@rule("driver-too-old", "error")
def driver_too_old(plan: BoxPlan) -> Said:
    """A toolkit newer than the driver's CUDA compiles code that the driver cannot load."""
    driver = plan.facts.get("driver")
    if plan.toolkit and driver and driver.get("cuda"):
        have, need = int(str(driver["cuda"]).split(".")[0]), int(plan.toolkit.split("-")[0])
        if have < need:
            yield (
                f"driver {driver['version']} is for CUDA {driver['cuda']}, the toolkit is {version(plan.toolkit)}",
                f"install a newer driver, or set host.toolkit to a {have}-x version",
            )


@rule("volta-driver", "error")
def volta_driver(plan: BoxPlan) -> Said:
    """R580 is the last driver branch with Volta; with a newer one the cards vanish at the next boot."""
    driver = plan.facts.get("driver")
    volta = [gpu for gpu in plan.facts.get("gpus") or [] if tuple(gpu["compute_capability"]) == (7, 0)]
    branch = str((driver or {}).get("version") or "").split(".")[0]
    if volta and driver and branch.isdigit() and int(branch) > 580:
        yield f"driver {driver['version']} does not support {volta[0]['name']}", "go back to branch 580 and pin it"


@rule("expected-hardware", "error")
def expected_hardware(plan: BoxPlan) -> Said:
    """A card or a bridge that the owner knows to be there and the box does not show: half seated, or gone."""
    expect, gpus = plan.settings.expect, plan.facts.get("gpus") or []
    if expect.gpus is not None and len(gpus) != expect.gpus:
        yield (
            f"{len(gpus)} GPUs are seen, {expect.gpus} are expected",
            "reseat the missing card, look for Xid in the kernel log",
        )
    if expect.nvlink is not None:
        bridged = [int(link[2:]) for link in (plan.facts.get("links") or {}).values() if link.startswith("NV")]
        least = min(bridged, default=0)
        if least != expect.nvlink:
            yield (
                f"a pair has {least} NVLink links, {expect.nvlink} are expected",
                "reseat the bridge and look at `nvidia-smi nvlink -s`; or correct expect.nvlink",
            )
