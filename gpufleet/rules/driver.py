"""Rules about the NVIDIA driver and its kernel module."""

from __future__ import annotations

from gpufleet.plan import BoxPlan
from gpufleet.rules.base import Said, rule
from gpufleet.rules.look import branch, capability, driver, gpus, is_geforce, listed, numbers, on_gpus
from gpufleet.toolkit import METAPACKAGE

LAST_WITH_VOLTA = 580
TO_580 = "apt-get install nvidia-driver-pinning-580, then the closed driver of branch 580, and reboot"
VOLTA_SOURCE = "field-problems 1; NVIDIA: R580 is the last branch with Volta"


def _volta(plan: BoxPlan) -> str | None:
    """The name of a card that is a Volta; one is enough, also beside other cards."""
    return next((str(gpu["name"]) for gpu in gpus(plan) if capability(gpu) == (7, 0)), None)


@rule(
    "GF101",
    "volta-driver",
    level="error",
    source=VOLTA_SOURCE,
    remedy="Branch 580, pinned: `nvidia-driver-pinning-580`.",
)
def volta_driver(plan: BoxPlan) -> Said:
    """580 is the last driver branch with Volta. With a newer one the V100s vanish at the next boot, on mixed boxes
    too."""
    volta, found = _volta(plan), branch(plan)
    if volta and found and found > LAST_WITH_VOLTA:
        yield f"driver {driver(plan)['version']} does not support {volta}", TO_580


@rule(
    "GF102",
    "volta-open-modules",
    level="error",
    source=VOLTA_SOURCE,
    remedy="The closed flavour of the same branch.",
)
def volta_open_modules(plan: BoxPlan) -> Said:
    """The open kernel modules need a GSP, which Volta lacks: they never bind to a V100, whatever the branch."""
    volta = _volta(plan)
    if volta and driver(plan).get("flavour") == "open":
        yield f"the open kernel modules do not support {volta}", TO_580


@rule(
    "GF103",
    "gpus-unreadable",
    level="error",
    source="seen: a driver that was updated without a reboot",
    remedy="`nvidia-smi` on the box says why.",
)
def gpus_unreadable(plan: BoxPlan) -> Said:
    """There is an NVIDIA driver that shows no GPU. Planned as it is, the box would be one without GPUs."""
    if driver(plan) and not plan.facts.get("gpus") and not _explained(plan):
        said = "; ".join(error["message"] for error in plan.facts.get("errors") or [] if error["source"] == "nvml")
        yield (
            f"there is an NVIDIA driver, but NVML shows no GPU ({said or 'no reason given'})",
            "run nvidia-smi on the box; a driver updated without a reboot needs one",
        )


def _explained(plan: BoxPlan) -> bool:
    """Whether a rule below says why the driver shows no card."""
    return _mismatch(plan) or bool(plan.facts.get("nouveau")) or _unsigned(plan)


def _mismatch(plan: BoxPlan) -> bool:
    library, module = numbers(driver(plan).get("version")), numbers(driver(plan).get("module"))
    return bool(library and module) and library != module


@rule(
    "GF104",
    "driver-library-mismatch",
    level="error",
    source="field-problems 4",
    remedy="Reboot.",
)
def driver_library_mismatch(plan: BoxPlan) -> Said:
    """The loaded kernel module and the driver's libraries are of different versions: `Driver/library version
    mismatch`, mostly after an upgrade at night. Restarting services does not help."""
    if _mismatch(plan):
        found = driver(plan)
        yield f"kernel module {found['module']} is loaded, the libraries are {found['version']}", "reboot the box"


@rule(
    "GF105",
    "module-on-disk",
    level="warning",
    source="field-problems 6",
    remedy="Remove what is left of the other version, so that the next boot loads the one that runs.",
)
def module_on_disk(plan: BoxPlan) -> Said:
    """The next boot loads another kernel module than the one that runs: one left in `updates/dkms`, or built for one
    kernel only. Then the driver and its libraries do not fit together."""
    found = driver(plan)
    disk, loaded = numbers(found.get("module_on_disk")), numbers(found.get("module"))
    if disk and loaded and disk != loaded and not _mismatch(plan):
        yield (
            f"kernel module {found['module']} is loaded, modinfo finds {found['module_on_disk']}",
            "look at `modinfo -n nvidia` and `dkms status`; remove the stale one, run depmod and update-initramfs -u",
        )


@rule(
    "GF106",
    "nouveau-loaded",
    level="error",
    source="field-problems 8",
    remedy="Blacklist nouveau, rebuild the initramfs, reboot.",
)
def nouveau_loaded(plan: BoxPlan) -> Said:
    """The kernel's own driver has taken the cards, so NVIDIA's cannot. A warning when none of NVIDIA's is installed:
    then the card may be for the screen only, and the box is planned as one without GPUs."""
    if plan.facts.get("nouveau") and not plan.facts.get("gpus"):
        remedy = (
            "write `blacklist nouveau` into /etc/modprobe.d/nouveau.conf, run update-initramfs -u, install NVIDIA's "
            "driver if it is not there, reboot"
        )
        yield "nouveau has the NVIDIA card", remedy, "error" if driver(plan) else "warning"


def _unsigned(plan: BoxPlan) -> bool:
    found = driver(plan)
    return bool(plan.facts.get("secure_boot") and found and not found.get("module") and not plan.facts.get("gpus"))


@rule(
    "GF107",
    "secure-boot",
    level="error",
    source="field-problems 8",
    remedy="Enrol the key that signs the module, or take the distribution's signed packages.",
)
def secure_boot(plan: BoxPlan) -> Said:
    """Secure Boot is on and the driver's module is not loaded: `Key was rejected by service`."""
    if _unsigned(plan):
        yield (
            "Secure Boot is on and NVIDIA's kernel module is not loaded",
            "enrol DKMS's key (`mokutil --import /var/lib/shim-signed/mok/MOK.der`, then reboot), or install the "
            "signed linux-modules-nvidia packages",
        )


@rule(
    "GF108",
    "turing-open-modules",
    level="warning",
    source="field-problems 9; NVIDIA/open-gpu-kernel-modules 1211",
    remedy="The closed modules of branch 580; 595 and 610 are reported to run well with the open ones.",
)
def turing_open_modules(plan: BoxPlan) -> Said:
    """Open kernel modules of branch 580 have crashed a pair of 2080 Ti hard when load ended; the closed ones have
    not."""
    turing = next((gpu["name"] for gpu in gpus(plan) if capability(gpu) == (7, 5)), None)
    if turing and branch(plan) == LAST_WITH_VOLTA and driver(plan).get("flavour") == "open":
        yield f"driver {driver(plan)['version']} runs {turing} by the open kernel modules", "install the closed ones"


@rule(
    "GF110",
    "driver-candidate",
    level="warning",
    source="field-problems 2 and 3",
    remedy="Pin the branch: `nvidia-driver-pinning-<branch>` or exact versions, never a metapackage.",
)
def driver_candidate(plan: BoxPlan) -> Said:
    """The next `apt upgrade` would take the driver to another branch: `cuda-drivers-580` asks for 580 or anything
    newer, and from 590 on the names of packages have no branch."""
    loaded = branch(plan)
    candidates = {
        name: numbers(package["candidate"])[0]
        for name, package in (plan.facts.get("nvidia_packages") or {}).items()
        if _of_driver(package.get("version"), loaded) and numbers(package.get("candidate"))
    }
    other = {name: found for name, found in candidates.items() if found != loaded}
    if other:
        name = min(other)
        yield (
            f"apt would take {name} from branch {loaded} to {other[name]} ({len(other)} packages)",
            f"apt-get install nvidia-driver-pinning-{loaded}, or hold the exact packages: apt-mark hold {name} …",
        )


def _of_driver(version: object, loaded: int | None) -> bool:
    """Whether a package is part of the driver: it has the driver's version."""
    return loaded is not None and numbers(version)[:1] == (loaded,)


@rule(
    "GF111",
    "driver-origins",
    level="warning",
    source="field-problems 7",
    remedy="One origin for all of the driver's packages, by apt preferences.",
)
def driver_origins(plan: BoxPlan) -> Said:
    """Parts of the driver come from the distribution and parts from NVIDIA's repository; an upgrade of one side breaks
    the other."""
    loaded = branch(plan)
    origins = {
        str(package["origin"])
        for package in (plan.facts.get("nvidia_packages") or {}).values()
        if package.get("origin") and _of_driver(package.get("version"), loaded)
    }
    if len(origins) > 1:
        yield (
            f"the driver's packages are from {listed(sorted(origins))}",
            "pin one origin in /etc/apt/preferences.d and reinstall the driver from it",
        )


@rule(
    "GF112",
    "driver-by-installer",
    level="warning",
    source="field-problems 7",
    remedy="`nvidia-uninstall`, then the driver by apt.",
)
def driver_by_installer(plan: BoxPlan) -> Said:
    """NVIDIA's .run installer has put a driver on the box. apt does not know of it, and packages over it mix two
    versions."""
    if plan.facts.get("nvidia_installer"):
        mixed = any(
            _of_driver(package.get("version"), branch(plan))
            for package in (plan.facts.get("nvidia_packages") or {}).values()
        )
        more = "; packages of a driver are there too" if mixed else ""
        yield f"a driver was installed by the .run installer{more}", "run nvidia-uninstall, then install it by apt"


@rule(
    "GF113",
    "cuda-compat",
    level="error",
    source="field-problems 11",
    remedy="Remove the `cuda-compat` package.",
)
def cuda_compat(plan: BoxPlan) -> Said:
    """NVIDIA's forward-compatibility libraries are for data-centre cards only; on a GeForce they end in error 804, with
    a newer driver in 803. A warning where all cards are of the data centre."""
    paths = plan.facts.get("cuda_compat") or []
    if paths and on_gpus(plan):
        geforce = any(is_geforce(gpu) for gpu in gpus(plan))
        yield (
            f"cuda-compat libraries are there: {paths[0]}",
            "apt-get remove 'cuda-compat-*', or take the path out of ld.so.conf.d",
            "error" if geforce else "warning",
        )


@rule(
    "GF114",
    "driver-metapackage",
    level="error",
    source="field-problems 3",
    remedy="`cuda_toolkit` in the stack's page, or the package `cuda-toolkit-13-0`: a toolkit and nothing else.",
)
def driver_metapackage(plan: BoxPlan) -> Said:
    """A stack asks for `cuda`, `cuda-13-0`, `cuda-runtime-…` or `cuda-drivers`: they replace the box's driver by the
    newest."""
    for stack in plan.stacks:
        wrong = [name for name in stack.apt if METAPACKAGE.match(name) or name.startswith("cuda-drivers")]
        if wrong:
            yield (
                f"{stack.name} asks for {listed(wrong)}, which bring an NVIDIA driver",
                "name cuda-toolkit-VERSION in the stack's `apt`, or its `cuda_toolkit`",
            )
