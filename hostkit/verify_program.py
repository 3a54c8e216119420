"""Runs in a new runtime, by its python, as its services' user: does it hold what it should, and do the cards work.

It is handed over as text and imports nothing but the standard library and, where cards are asked for, torch. Called
with the path of a JSON file; prints a line that begins with MARK and ends with the answer as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import traceback

MARK = "GPUFLEET-VERIFIED "
LONGEST = 1000  # characters of an error that are told


class Wrong(Exception):
    """Something is not as it should be."""

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(cause)
        self.cause, self.remedy = cause, remedy


def plain_name(name: str) -> str:
    """A distribution's name as packaging normalises it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def plain_version(text: str) -> str:
    """A version for comparing: wheels write 2026.7.22 and +cu.1 where metadata may write 2026.07.22 and +cu-1."""
    parts = re.split(r"[.+_-]", text.lower().lstrip("v"))
    return ".".join(str(int(part)) if part.isdigit() else part for part in parts)


def versions(wanted: "dict[str, str]") -> "dict[str, str]":
    """What is installed of `wanted`, {distribution: version}. Raises Wrong for another version, a gap, an addition."""
    import importlib.metadata  # and not where only MARK is wanted

    there = {plain_name(item.metadata["Name"]): item.version for item in importlib.metadata.distributions()}
    pinned = {plain_name(name): version for name, version in wanted.items()}
    problems = []
    for name, version in sorted(pinned.items()):
        if name not in there:
            problems.append("{} {} is not installed".format(name, version))
        elif plain_version(there[name]) != plain_version(version):
            problems.append("{} is {}, not the locked {}".format(name, there[name], version))
    problems += ["{} {} is in no lock".format(name, there[name]) for name in sorted(set(there) - set(pinned))]
    if problems:
        raise Wrong("; ".join(problems), "lock the stack anew (`gpufleet stacks lock`), then deploy again")
    return {name: there[name] for name in sorted(pinned)}


def covers(built: "list[str]", arch: str) -> bool:
    """Whether machine code of `built` (sm_75, compute_90, sm_90a …) runs on `sm75`.

    Code for x.y runs on x.z with z above; PTX (compute_) on everything newer; an `a` or `f` binds code to its own chip.
    """
    major, minor = int(arch[2:-1]), int(arch[-1])
    for name in built:
        known = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", name)
        if not known:
            continue
        its_major, its_minor = int(known.group(2)), int(known.group(3))
        if known.group(4):
            fits = (its_major, its_minor) == (major, minor)
        elif known.group(1) == "compute":
            fits = (its_major, its_minor) <= (major, minor)
        else:
            fits = its_major == major and its_minor <= minor
        if fits:
            return True
    return False


def torch_build(archs: "list[str]") -> dict:
    """torch's CUDA version and what it has machine code for; needs no card. Raises Wrong."""
    torch = importlib.import_module("torch")

    if not torch.version.cuda:
        raise Wrong(
            "torch {} is a build without CUDA".format(torch.__version__),
            "lock the stack with torch's build for CUDA (`torch_index` of its page)",
        )
    built = (torch._C._cuda_getArchFlags() or "").split()  # get_arch_list() is empty where the driver does not answer
    lacking = [arch for arch in archs if not covers(built, arch)]
    if lacking:
        raise Wrong(
            "torch {} has no machine code for {} (it has {})".format(
                torch.__version__, ", ".join(lacking), " ".join(built)
            ),
            "set a stack whose torch has it: docs/reference/stacks.md says which is for which card",
        )
    return {"version": torch.__version__, "cuda": torch.version.cuda, "arch_list": built}


def torch_cuda(wanted: str) -> str:
    """torch's CUDA version, which must be `wanted` (`13.0`; empty: no CUDA); needs no card. Raises Wrong.

    A lock may name one file of several with the same version: PyPI's torch 2.13.0 does not say for which CUDA it is.
    """
    torch = importlib.import_module("torch")
    found = torch.version.cuda or ""
    if found != wanted:
        raise Wrong(
            "torch {} is a build {}, the stack's page says {}".format(
                torch.__version__, for_cuda(found), for_cuda(wanted)
            ),
            "lock the stack with the build its page names (`versions.torch`, `torch_index`), or mend the page: "
            "`gpufleet stacks lock`, then deploy again",
        )
    return found


def for_cuda(version: str) -> str:
    return "for CUDA {}".format(version) if version else "without CUDA"


def cards(count: int) -> list:
    """A product on each card, a copy between every two: nvidia-smi may show a card that fails both. Raises Wrong."""
    torch = importlib.import_module("torch")

    seen = torch.cuda.device_count()
    if seen != count:
        raise Wrong(
            "torch sees {} of {} GPUs".format(seen, count),
            "look at nvidia-smi and at the rights of /dev/nvidia*; in a container /dev/nvidia-uvm is needed, too",
        )
    found = []
    for index in range(count):
        name = torch.cuda.get_device_name(index)
        square = torch.ones(512, 512, device=index, dtype=torch.half)
        if not bool((square @ square == 512).all()):
            raise Wrong(
                "a product on GPU {} ({}) is wrong".format(index, name),
                "look for Xid in the kernel log; reseat the card",
            )
        found.append({"name": name, "compute_capability": list(torch.cuda.get_device_capability(index))})
    held = [torch.arange(1 << 20, device=index) + index for index in range(count)]
    for source in range(count):
        for target in range(count):
            wanted = torch.arange(1 << 20, device=target) + source
            if not bool((held[source].to(target) == wanted).all()):
                raise Wrong(
                    "a copy from GPU {} to GPU {} arrives wrong".format(source, target),
                    "P2P does not work between them: turn the IOMMU and ACS off, or set NCCL_P2P_DISABLE=1",
                )
    return found


def compiler(toolkit: str) -> str:
    """The release that CUDA_HOME's nvcc says, which must be the toolkit's. Raises Wrong."""
    program = os.path.join(os.environ.get("CUDA_HOME") or "/no-cuda-home", "bin", "nvcc")
    remedy = "install cuda-toolkit-{} on the box, then deploy again".format(toolkit)
    try:
        said = subprocess.run([program, "--version"], stdout=subprocess.PIPE, check=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError) as error:
        raise Wrong("{} --version does not run: {}".format(program, error), remedy) from None
    known = re.search(r"release (\d+\.\d+)", said)
    if not known or known.group(1) != toolkit.replace("-", "."):
        raise Wrong("{} is release {}, not {}".format(program, known and known.group(1), toolkit), remedy)
    return known.group(1)


def line(text: str) -> str:
    """Run a line of the stack's own."""
    exec(compile(text, "<verify>", "exec"), {"__name__": "verify"})  # noqa: S102 - a line of the stack's page
    return text


def answer(spec: dict) -> dict:
    """{"versions", "torch", "cuda", "gpus", "nvcc", "lines", "failures"}: each check on its own.

    + spec: cuda: what the page says of torch (`13.0`, empty: no CUDA), null where it says nothing
    """
    checks: "list[tuple]" = [("versions", versions, spec["versions"])] if spec["versions"] else []
    checks += [("torch", torch_build, spec["archs"])] if spec["archs"] else []
    checks += [("cuda", torch_cuda, spec["cuda"])] if spec["cuda"] is not None else []
    checks += [("gpus", cards, spec["gpus"])] if spec["gpus"] else []
    checks += [("nvcc", compiler, spec["toolkit"])] if spec["toolkit"] else []
    checks += [("line {}".format(number + 1), line, text) for number, text in enumerate(spec["lines"])]
    found: dict = {"failures": []}
    for name, check, argument in checks:
        try:
            found[name] = check(argument)
        except Wrong as wrong:
            found["failures"].append({"check": name, "cause": wrong.cause, "remedy": wrong.remedy})
        except BaseException as error:
            traceback.print_exc()
            text = str(error)[:LONGEST]
            said = "{}: {}".format(type(error).__name__, text) if text else type(error).__name__
            what = argument if check is line else name
            found["failures"].append(
                {"check": name, "cause": "{} fails with {}".format(what, said), "remedy": remedy(str(error))}
            )
    return found


def remedy(said: str) -> str:
    """What to do about an error that others have met."""
    for words, what in REMEDIES:
        if words in said:
            return what
    return "see to what it names; the stack's page (files/stacks) has the line"


REMEDIES = (
    ("no kernel image", "its machine code is not for this card: set a stack that is made for it"),
    ("driver version is insufficient", "update the driver, or set a stack for an older CUDA"),
    ("CUDA unknown error", "in a container pass /dev/nvidia-uvm through; else reboot the box"),
    ("forward compatibility", "remove cuda-compat libraries from the linker's path"),
    ("out of memory", "something else holds the GPU's memory: see nvidia-smi, stop it, then deploy again"),
    ("undefined symbol", "an extension was built for another torch: lock the stack anew"),
    (
        "GLIBC_",
        "it was compiled on a newer system than this box has: where the stack builds it from source, let the box with "
        "the oldest system build it (docs/how-to/build-from-source.md says how); else set another stack, or upgrade "
        "this box's system",
    ),
    ("cannot open shared object file", "install the package that has that library (`apt` of the stack's page)"),
)


def main() -> int:
    with open(sys.argv[1], encoding="utf-8") as handle:
        spec = json.load(handle)
    found = answer(spec)
    sys.stderr.flush()
    sys.stdout.write("\n" + MARK + json.dumps(found) + "\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    # not sys.exit: libraries that crash while Python takes itself apart have nothing to say of the runtime
    status = main()
    os._exit(status)
