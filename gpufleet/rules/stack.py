"""Rules about a stack: whether its wheels have code for the cards, and whether it can be installed at all."""

from __future__ import annotations

from gpufleet.plan import BoxPlan
from gpufleet.rules.base import Said, rule
from gpufleet.rules.look import archs, cuda_of, driver, listed, numbers, on_gpus, torch
from gpufleet.toolkit import version

# Builds of torch by their CUDA, with the last torch that has sm_70 (pytorch 172352, 190385); None: it never had.
LAST_WITH_VOLTA = {(12, 6): (2, 14), (12, 8): (2, 10)}


@rule(
    "GF220",
    "stack-lacks-arch",
    level="error",
    source="field-problems 13",
    remedy="A stack for that card.",
)
def stack_lacks_arch(plan: BoxPlan) -> Said:
    """The stack has no machine code for a card that its instance gets; the engine would end with `no kernel image is
    available for execution`."""
    for instance in on_gpus(plan):
        for name in sorted(archs(plan, instance) - set(instance.stack.arch)):
            yield (
                f"{instance.stack.name} has no kernels for {name}",
                f"use a stack for {name}; this one is for {', '.join(instance.stack.arch)}",
            )


@rule(
    "GF221",
    "torch-lacks-arch",
    level="error",
    source="field-problems 13; pytorch 172352 and 190385",
    remedy="A stack with a build of torch that has the card's code: for V100 cu126, or cu128 up to torch 2.10.",
)
def torch_lacks_arch(plan: BoxPlan) -> Said:
    """The stack's build of torch has no code for the card. sm_70 is in the cu126 builds, in cu128 up to torch 2.10 and
    in no cu130 one; sm_120 begins with cu128. What the page of the stack says of `arch` does not change that."""
    for instance in on_gpus(plan):
        build, name = cuda_of(torch(instance.stack)), torch(instance.stack)
        if build is None:
            continue
        found = archs(plan, instance)
        last = LAST_WITH_VOLTA.get(build, (99,) if build < (12, 6) else ())
        if "sm70" in found and numbers(name)[:2] > last:
            yield (
                f"{instance.stack.name}: torch {name} has no sm_70",
                "use a stack with torch for cu126, or torch 2.10.0+cu128 at most",
            )
        if found & {"sm100", "sm120"} and build < (12, 8):
            yield f"{instance.stack.name}: torch {name} has no code for Blackwell", "use a stack with cu128 or later"


@rule(
    "GF222",
    "driver-older-than-torch",
    level="error",
    source="NVIDIA: CUDA compatibility; CUDA 13 needs driver 580 or later",
    remedy="A newer driver, or a stack of the driver's CUDA.",
)
def driver_older_than_torch(plan: BoxPlan) -> Said:
    """The stack's torch is built for a newer major version of CUDA than the driver knows: it finds no GPU."""
    have = numbers(driver(plan).get("cuda"))
    for instance in on_gpus(plan):
        need = cuda_of(torch(instance.stack))
        if have and need and have[0] < need[0]:
            yield (
                f"{instance.stack.name}: torch {torch(instance.stack)} needs a driver for CUDA {need[0]}, "
                f"{driver(plan)['version']} is for {driver(plan)['cuda']}",
                f"install driver {'580' if need[0] == 13 else '525'} or later, or use a stack for CUDA {have[0]}",
            )


@rule(
    "GF227",
    "toolkit-other-than-torch",
    level="warning",
    source="torch.utils.cpp_extension: The detected CUDA version mismatches the one PyTorch was compiled with",
    remedy="A `host.toolkit` of the major version that the stack's torch is built for, or none given.",
)
def toolkit_other_than_torch(plan: BoxPlan) -> Said:
    """`host.toolkit` is of another major version than the CUDA that the stack's torch is built for. What is compiled on
    the box at first use does not fit it: torch refuses to build FlashQLA so, at the first prefill: an error."""
    for instance in on_gpus(plan):
        given, need = plan.settings.host.toolkit, cuda_of(torch(instance.stack))
        toolkit = numbers(version(given)) if given and given != "none" else ()
        if toolkit and need and toolkit[0] != need[0]:
            yield (
                f"{instance.stack.name}: host.toolkit is {given}, its torch is built for CUDA {need[0]}.{need[1]}",
                f"take host.toolkit out, or set it to {need[0]}-{need[1]}",
                "error" if "flashqla" in instance.stack.provides else "warning",
            )


@rule(
    "GF223",
    "stack-not-installable",
    level="warning",
    source="the catalogue of stacks",
    remedy="Another stack to serve with; plans of this one can be looked at.",
    deploy_level="error",
)
def stack_not_installable(plan: BoxPlan) -> Said:
    """The stack has no lock of its packages: it can be planned, not installed yet. A deploy of it is refused."""
    for stack in plan.stacks:
        if not stack.installable:
            yield f"{stack.name} can be planned, not installed yet: it has no lock", "deploy with a stack that has one"


@rule(
    "GF224",
    "flashinfer-sm75",
    level="warning",
    source="field-problems 20; flashinfer 3620 and 3528, mended in 0.6.16",
    remedy="A stack with FlashInfer 0.6.16 or later.",
)
def flashinfer_sm75(plan: BoxPlan) -> Said:
    """FlashInfer 0.6.12 to 0.6.15 are reported broken on SM75 cards. Information for a stack made for them, which
    brings the fix (box B serves so)."""
    for instance in on_gpus(plan):
        versions = instance.stack.versions
        found = numbers(versions.flashinfer)[:3] if versions and versions.flashinfer else ()
        if "sm75" in archs(plan, instance) and (0, 6, 12) <= found < (0, 6, 16):
            yield (
                f"{instance.stack.name} has FlashInfer {versions.flashinfer if versions else ''}, broken on SM75",
                "use a stack with 0.6.16 or later, without flashinfer-cubin",
                "info" if "fp8-kv-sm75" in instance.stack.provides else "warning",
            )


@rule(
    "GF225",
    "tilelang-sm70",
    level="error",
    source="field-problems 22; 1Cat-vLLM 105",
    remedy="tilelang 0.1.10 or later.",
)
def tilelang_sm70(plan: BoxPlan) -> Said:
    """tilelang 0.1.9 makes code that V100s do not run (`fma2`)."""
    for instance in on_gpus(plan):
        versions = instance.stack.versions
        if "sm70" in archs(plan, instance) and versions and numbers(versions.tilelang) == (0, 1, 9):
            yield f"{instance.stack.name} has tilelang 0.1.9, broken on SM70", "use a stack with tilelang 0.1.10"


@rule(
    "GF226",
    "python-unsupported",
    level="error",
    source="a lock holds the hashes of wheels for certain Python versions",
    remedy="A system whose python3 is that version, or a stack for the box's.",
)
def python_unsupported(plan: BoxPlan) -> Said:
    """The box's `python3` is of a version that the stack's lock was not made for; with it other wheels would be
    installed. Only `python3` itself counts: another one beside it, as Ubuntu offers, is not enough."""
    found = (plan.facts.get("python") or {}).get("version")
    if not found:
        return
    short = ".".join(found.split(".")[:2])
    for stack in plan.stacks:
        if short not in stack.python:
            yield (
                f"{stack.name} is locked for Python {listed(stack.python)}, the box has {short}",
                f"use a system whose python3 is {stack.python[0]}, or a stack made for {short}",
            )
