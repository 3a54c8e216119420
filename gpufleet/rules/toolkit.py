"""Rules about the CUDA toolkit and what compiles with it on the box."""

from __future__ import annotations

import re

from gpufleet.plan import BoxPlan, Instance
from gpufleet.rules.base import Level, Said, rule
from gpufleet.rules.look import (
    capability,
    cards,
    compiles,
    computed,
    cuda_of,
    driver,
    failed,
    fp8_kv,
    listed,
    numbers,
    on_gpus,
    toolkits,
    torch,
)
from gpufleet.toolkit import is_of_toolkit, version
from gpufleet.traits import arch

# The newest GCC that nvcc takes (NVIDIA's installation guides of each version), weakest first.
NEWEST_GCC = {(12, 0): 12, (12, 4): 13, (12, 8): 14, (13, 0): 15}
# The first toolkit with Blackwell (CUDA 12.8 and 12.9 release notes).
BLACKWELL = {(10, 0): (12, 8), (10, 1): (12, 8), (12, 0): (12, 8), (10, 3): (12, 9), (12, 1): (12, 9)}
# The first driver branch of each major version (NVIDIA: CUDA compatibility).
FIRST_DRIVER = {12: "525 or later", 13: "580 or later"}


def _cuda(toolkit: str | None) -> tuple[int, ...]:
    """`(13, 0)` for `13-0`, empty for none."""
    return numbers(version(toolkit)) if toolkit else ()


@rule(
    "GF201",
    "toolkit-drops-arch",
    level="error",
    source="field-problems 14; nvcc 13.0: Unsupported gpu architecture 'compute_70'",
    remedy='`host = {"toolkit": "12-9"}`, or `"12-8"`.',
)
def toolkit_drops_arch(plan: BoxPlan) -> Said:
    """CUDA 13 compiles nothing for cards below compute capability 7.5, such as a V100."""
    for toolkit, group in toolkits(plan):
        old = next((gpu for gpu in group if capability(gpu) < (7, 5)), None)
        if old and _cuda(toolkit) >= (13,):
            yield (
                f"CUDA {version(toolkit)} does not compile for {old['name']} ({arch(old)})",
                "set host.toolkit to 12-9 or 12-8",
            )


@rule(
    "GF202",
    "toolkit-before-blackwell",
    level="error",
    source="release notes of CUDA 12.8 and 12.9",
    remedy='`host = {"toolkit": "13-0"}`.',
)
def toolkit_before_blackwell(plan: BoxPlan) -> Said:
    """A toolkit older than a card's generation has no code for it: Blackwell begins with CUDA 12.8."""
    for toolkit, group in toolkits(plan):
        for gpu in group:
            first = BLACKWELL.get(capability(gpu))
            if first and _cuda(toolkit) < first:
                yield (
                    f"CUDA {version(toolkit)} does not know {gpu['name']} ({arch(gpu)})",
                    f"set host.toolkit to 13-0, or at least {first[0]}-{first[1]}",
                )
                break


@rule(
    "GF203",
    "toolkit-damaged",
    level="warning",
    source="seen: a folder that was deleted by hand",
    remedy="`apt-get install --reinstall cuda-nvcc-13-0 cuda-toolkit-13-0` (the finding names the version).",
)
def toolkit_damaged(plan: BoxPlan) -> Said:
    """The toolkit's package is installed, but its `bin/nvcc` is not there; apt sees nothing to do."""
    for toolkit in plan.toolkits if not failed(plan, "toolkits") else []:
        name, found = f"cuda-toolkit-{toolkit}", plan.facts.get("toolkits")
        if (plan.facts.get("packages") or {}).get(name) and found is not None and version(toolkit) not in found:
            yield (
                f"{name} is installed, but /usr/local/cuda-{version(toolkit)}/bin/nvcc is not there",
                f"apt-get install --reinstall cuda-nvcc-{toolkit} {name}",
            )


@rule(
    "GF204",
    "driver-too-old",
    level="error",
    source="NVIDIA: CUDA compatibility; a driver loads code of its own major version and older ones",
    remedy="A newer driver, or an older `host.toolkit`.",
)
def driver_too_old(plan: BoxPlan) -> Said:
    """The toolkit is of a newer major version than the driver's CUDA, so the driver could not load what it compiles."""
    have, found = numbers(driver(plan).get("cuda")), driver(plan)
    torches = [cuda_of(torch(instance.stack)) for instance in on_gpus(plan)]
    for toolkit in plan.toolkits:
        if have and have[0] < _cuda(toolkit)[0]:
            first = FIRST_DRIVER.get(_cuda(toolkit)[0])
            older = all(need is None or need[0] <= have[0] for need in torches)  # else GF222 asks for the driver, too
            yield (
                f"driver {found['version']} is for CUDA {found['cuda']}, the toolkit is {version(toolkit)}",
                (f"install driver {first}" if first else "install a newer driver")
                + (f", or set host.toolkit to {have[0]}-{have[1]}" if older else ""),
            )


@rule(
    "GF205",
    "gcc-too-new",
    level="warning",
    source="field-problems 16 and 24; NVIDIA's table of host compilers",
    remedy="An older GCC beside the box's own, named by `serve_env`: CC, CXX and CUDAHOSTCXX of one version.",
)
def gcc_too_new(plan: BoxPlan) -> Said:
    """nvcc refuses a g++ that is newer than it knows. An error for stacks that compile kernels on the box at first
    use."""
    have = numbers((plan.facts.get("compilers") or {}).get("g++"))
    for instance in on_gpus(plan):
        toolkit, cuda = instance.cuda_toolkit, _cuda(instance.cuda_toolkit)
        most = [gcc for first, gcc in NEWEST_GCC.items() if cuda >= first]
        own = instance.env.keys() & {"NVCC_CCBIN", "CUDAHOSTCXX"}
        if toolkit and have and most and have[0] > most[-1] and not own:
            level: Level = "error" if compiles(instance.stack) else "warning"
            names = f'"CC": "gcc-{most[-1]}", "CXX": "g++-{most[-1]}", "CUDAHOSTCXX": "g++-{most[-1]}"'
            yield (
                f"{instance.name}: g++ is {have[0]}, CUDA {version(toolkit)} takes {most[-1]} at most",
                f"apt-get install g++-{most[-1]}, and serve_env = {{{names}}}",
                level,
            )


@rule(
    "GF206",
    "glibc-too-new",
    level="warning",
    source="field-problems 16",
    remedy="A system with an older glibc (Debian 12, Ubuntu 24.04), or toolkit 13 where the cards allow it.",
)
def glibc_too_new(plan: BoxPlan) -> Said:
    """glibc 2.41 and later declare `cospi`, `rsqrt` and their like other than the headers of CUDA 12, so that nothing
    compiles. An error for stacks that compile kernels on the box at first use."""
    glibc = numbers((plan.facts.get("os") or {}).get("glibc"))
    if glibc < (2, 41):
        return
    for instance in on_gpus(plan):
        if (12,) <= _cuda(instance.cuda_toolkit) < (13,):
            level: Level = "error" if compiles(instance.stack) else "warning"
            older = any(capability(gpu) < (7, 5) for gpu in cards(plan, instance))
            remedy = "use Debian 12 or Ubuntu 24.04" + ("" if older else ", or set host.toolkit to 13-0")
            cuda = version(instance.cuda_toolkit or "")
            clash = f"glibc {plan.facts['os']['glibc']} and the headers of CUDA {cuda} clash"
            yield f"{instance.name}: {clash}", remedy, level


@rule(
    "GF207",
    "no-nvcc",
    level="error",
    source="field-problems 25; vLLM 0.27.1 takes FlashInfer as absent without nvcc",
    remedy="Let gpufleet install the toolkit: no `host.toolkit`, or a version.",
)
def no_nvcc(plan: BoxPlan) -> Said:
    """The stack compiles kernels on the box at first use, and `host.toolkit` is `none`, so nvcc is not on the service's
    path. Without nvcc vLLM takes FlashInfer as absent, and nothing else serves an FP8 KV cache below SM89."""
    for instance in on_gpus(plan):
        needs = compiles(instance.stack) or _needs_flashinfer(plan, instance)
        if needs and not instance.cuda_toolkit:
            wanted = instance.stack.cuda_toolkit or "13-0"
            yield (
                f"{instance.stack.name} needs nvcc, host.toolkit is none",
                f"set host.toolkit to {wanted}, or leave it out",
            )


def _needs_flashinfer(plan: BoxPlan, instance: Instance) -> bool:
    """Whether only FlashInfer can serve its KV cache (vLLM 0.27.1, triton_attn.py: no fp8 below 8.9)."""
    versions = instance.stack.versions
    old = any((8, 0) <= capability(gpu) < (8, 9) for gpu in cards(plan, instance))
    return bool(versions and versions.flashinfer and old and fp8_kv(instance))


@rule(
    "GF208",
    "toolkit-held",
    level="warning",
    source="field-problems 5",
    remedy="Hold exact names of the driver, not patterns; `apt-mark unhold` the others.",
)
def toolkit_held(plan: BoxPlan) -> Said:
    """Packages of the toolkit are on hold, as by `apt-mark hold 'libnv*'`: apt cannot install the one that is asked
    for. gpufleet's own holds do not count: it takes them off for an install of its own."""
    names = [f"cuda-toolkit-{toolkit}" for toolkit in plan.toolkits]
    names = [name for name in names if not (plan.facts.get("packages") or {}).get(name)]
    if not names:
        return
    ours = (plan.facts.get("apt") or {}).get("held") or []
    held = [item for item in plan.facts.get("holds") or [] if is_of_toolkit(item) and item not in ours]
    if held:
        yield (
            f"{listed(names)} is to be installed, and {', '.join(held[:4])} are on hold",
            f"apt-mark unhold {' '.join(held)}",
        )


@rule(
    "GF209",
    "compiler-variables",
    level="error",
    source="field-problems 24",
    remedy="CC is a C compiler, CXX and CUDAHOSTCXX its C++ one of the same version.",
)
def compiler_variables(plan: BoxPlan) -> Said:
    """`CC` is a C++ compiler, which breaks Triton; or CC, CXX and CUDAHOSTCXX are of different versions, of which one
    lacks its other half (`cc1plus`)."""
    for instance in plan.instances:
        named = {name: instance.env[name] for name in ("CC", "CXX", "CUDAHOSTCXX") if instance.env.get(name)}
        if "++" in named.get("CC", ""):
            right = named["CC"].replace("g++", "gcc").replace("clang++", "clang")
            yield f"{instance.name}: CC is {named['CC']}", f'serve_env = {{"CC": "{right}"}}'
        elif len({value.rpartition("-")[2] if "-" in value else "" for value in named.values()}) > 1:
            said = ", ".join(f"{name}={value}" for name, value in named.items())
            yield f"{instance.name}: compilers of different versions: {said}", "give all of them one version"


@rule(
    "GF210",
    "build-memory",
    level="warning",
    source="field-problems 17",
    remedy="`MAX_JOBS` in `serve_env`: one job for each 4 GiB of memory.",
)
def build_memory(plan: BoxPlan) -> Said:
    """Kernels are compiled on the box with as many jobs as it has cores, each of which takes about 4 GiB: a small box
    runs out of memory, or reboots."""
    total, cores = (plan.facts.get("memory") or {}).get("total_mib"), (plan.facts.get("cpu") or {}).get("threads")
    if not total or not cores:
        return
    jobs = max(1, total // 4096)
    for instance in on_gpus(plan):
        if compiles(instance.stack) and cores > jobs and "MAX_JOBS" not in instance.env:
            yield (
                f"{instance.name}: {cores} compilers at once, and {total // 1024} GiB of memory",
                f'serve_env = {{"MAX_JOBS": "{jobs}"}}',
            )


@rule(
    "GF211",
    "cuda-home",
    level="warning",
    source="field-problems 14 and 25",
    remedy="No CUDA_HOME of one's own: the plan sets that of the instance's toolkit. Another toolkit: `host.toolkit`.",
)
def cuda_home(plan: BoxPlan) -> Said:
    """CUDA_HOME names another folder than the toolkit's that the plan installs, such as `/usr/local/cuda`, which
    follows whatever was installed last."""
    for instance in on_gpus(plan):
        given = instance.env.get("CUDA_HOME")
        right = f"/usr/local/cuda-{version(instance.cuda_toolkit)}" if instance.cuda_toolkit else None
        if given is not None and right and given.rstrip("/") != right:
            yield (
                f"{instance.name}: CUDA_HOME is {given!r}, the toolkit is in {right}",
                "take CUDA_HOME out of serve_env; another toolkit by host.toolkit",
            )


@rule(
    "GF212",
    "arch-list",
    level="error",
    source="FlashQLA at 3ab27d7: its own list, 7.0;7.5, does not compile with CUDA 13",
    remedy="No TORCH_CUDA_ARCH_LIST: the plan sets that of the instance's cards.",
)
def arch_list(plan: BoxPlan) -> Said:
    """TORCH_CUDA_ARCH_LIST leaves out a card of the instance, or has one that the toolkit does not compile for."""
    for instance in on_gpus(plan):
        if computed(instance, "TORCH_CUDA_ARCH_LIST"):
            continue
        words = re.split(r"[;, ]+", instance.env.get("TORCH_CUDA_ARCH_LIST", ""))
        found = {numbers(word.removesuffix("+PTX")) for word in words if numbers(word)}
        own = {capability(gpu) for gpu in cards(plan, instance)}
        too_old = sorted(item for item in found if item < (7, 5) and _cuda(instance.cuda_toolkit) >= (13,))
        if found and (own - found or too_old):
            right = ";".join(f"{major}.{minor}" for major, minor in sorted(own))
            yield (
                f"{instance.name}: TORCH_CUDA_ARCH_LIST is {';'.join(words)}, its cards are {right}",
                "take TORCH_CUDA_ARCH_LIST out of serve_env",
            )
