"""Processor time of starting, here and on a box: `python -m benchmarks.startup [ROUNDS] [--against CHECKOUT]`.

Each thing is started in turn, round after round, so that what else the machine does falls on all of them; told is the
least of its rounds, which is nearest to what it takes alone. With `--against` another checkout is measured in the same
rounds. Nothing is changed and no box is needed: the probe looks at this machine.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpufleet import kit
from lab.paths import REPOSITORY
from operations.kit_scripts import COMPILE

IMPORTS = """\
import operations.session
from operations import deployment, host, lock, model, release, rollout, runtime, toolkit
from gpufleet import catalogue, paths
from gpufleet.models import Model
from gpufleet.stacks import Stack
catalogue.load(Stack, "stack", paths.stack_folders())
catalogue.load(Model, "model", paths.model_folders())
"""
BY_US = """\
from operations.start import loaded
loaded()
"""
SPEC = b'{"packages": ["g++", "cuda-toolkit-13-0"]}\n'


@dataclass(frozen=True)
class Start:
    name: str
    command: Sequence[str]
    path: Path = REPOSITORY
    stdin: bytes = b""


def starts(folder: Path, against: Path | None) -> list[Start]:
    """What is started; the first is what the others are compared with."""
    python = sys.executable
    found = [
        Start("pyinfra itself", [python, "-c", "import pyinfra_cli.main"]),
        Start("pyinfra with the product and its catalogues", [python, "-c", f"import pyinfra_cli.main\n{IMPORTS}"]),
        Start("the same, as `gpufleet deploy` starts it", [python, "-c", f"{BY_US}{IMPORTS}"]),
        Start("the gpufleet command", [python, "-c", "import gpufleet.cli"]),
    ]
    plain, whole = folder / "plain.pyz", folder / "whole.pyz"
    plain.write_bytes(kit.build().data)
    subprocess.run(["python3", "-IS", "-c", COMPILE, str(plain), str(whole)], check=True)
    found += [
        Start("a box's python3", ["python3", "-IS", "-c", ""]),
        Start("the probe of a kit as it is sent", ["python3", "-IS", str(plain), "probe"], stdin=SPEC),
        Start("the probe of a kit with byte code", ["python3", "-IS", str(whole), "probe"], stdin=SPEC),
    ]
    if against:
        other = folder / "other.pyz"
        build = f"from gpufleet import kit; open({str(other)!r}, 'wb').write(kit.build().data)"
        subprocess.run([python, "-c", build], env={**os.environ, "PYTHONPATH": str(against)}, check=True)
        found += [
            Start(f"{against}: with its catalogues", [python, "-c", f"import pyinfra_cli.main\n{IMPORTS}"], against),
            Start(f"{against}: the gpufleet command", [python, "-c", "import gpufleet.cli"], against),
            Start(f"{against}: the probe", ["python3", str(other), "probe"], stdin=SPEC),
        ]
    return found


def seconds(start: Start) -> float:
    """User and system seconds of one start, of all its processes."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        start.command,
        input=start.stdin,
        cwd=start.path,
        env={**environment, "PYTHONPATH": str(start.path)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.startup")
    parser.add_argument("rounds", type=int, nargs="?", default=10)
    parser.add_argument("--against", type=Path, metavar="CHECKOUT")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        chosen = starts(Path(folder), given.against)
        best = {start.name: seconds(start) for start in chosen}
        for _ in range(given.rounds):
            for start in chosen:
                best[start.name] = min(best[start.name], seconds(start))
    first = best[chosen[0].name]
    for name, value in best.items():
        print(f"{value * 1000:7.0f} ms  {value / first:5.2f} ×  {name}")


if __name__ == "__main__":
    main()
