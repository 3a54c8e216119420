"""The NVML stand-in of a box: compiled from lab/nvml/*.c against NVIDIA's header, told by a text which cards it has.

The real nvidia-ml-py loads it as it would the driver's library, so that the probe is tested whole, down to ctypes.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpufleet import scenario as scenarios
from lab import cache, paths
from lab.errors import LabError
from lab.shell import run

LIBRARY = "libnvidia-ml.so.1"
HEADER_WHEEL = "nvidia-nvml-dev==13.0.87"
HEADER_SHA256 = "082871368275cf6620fc900f55d8eaf2563b263a38a00a5168e9650bce963ba1"

_SOURCES = Path(__file__).parent / "nvml"
_TOPOLOGIES = Path(__file__).parent / "topologies"
_FLAGS = ["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{LIBRARY}"]
# what a card of a scenario may have beside its identity, as the library's text calls it
_SETTINGS = ("gen", "gen_max", "width", "width_max", "limit_w", "persistence", "ecc", "mig", "display")
_ANCESTORS = {"PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": 50}
_P2P = {"OK": 0, "CNS": 1, "GNS": 2, "TNS": 3, "NS": 5}
# (part of the name, NVLinks the card has whether bridged or not, default power limit in watts)
_CARDS = [("V100-SXM2", 6, 300), ("RTX 2080 Ti", 2, 260), ("RTX 3090", 4, 350), ("RTX 5090", 0, 575)]


def names() -> list[str]:
    return sorted(path.stem for path in _TOPOLOGIES.glob("*.json"))


def scenario(name: str) -> dict[str, Any]:
    path = _TOPOLOGIES / f"{name}.json"
    if not path.is_file():
        raise LabError(f"there is no topology {name!r}", f"Use one of: {', '.join(names())}.")
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def gpu_uuid(scenario: dict[str, Any], index: int) -> str:
    return scenarios.gpu_uuid(scenario["name"], index)


def p2p_read(scenario: dict[str, Any], pair: str) -> str:
    """The scenario's own word, else what such cards say: GeForce over NVLink only, others within a socket."""
    given: dict[str, str] = scenario.get("p2p_read", {})
    if pair in given:
        return given[pair]
    if scenario["links"][pair].startswith("NV"):
        return "OK"
    if any("GeForce" in scenario["gpus"][int(index)]["name"] for index in pair.split("-")):
        return "CNS"
    return "TNS" if scenario["links"][pair] == "SYS" else "OK"


def conf(scenario: dict[str, Any]) -> str:
    """The text the library reads (lab/nvml/scenario.c).

    Beside the topology contract a scenario may have `nvswitch` (all NVLinks end at a switch), `faults`
    ({NVML function: error code, or "hang"}), `p2p_write` and `ancestors` ({pair: word}); and each of its cards `gen`,
    `gen_max`, `width`, `width_max` (PCIe), `limit_w`, `persistence`, `ecc`, `mig` and `display` (0 or 1; -1 for an
    `ecc` or `mig` that the card does not have).
    """
    return "".join(f"{line}\n" for line in _lines(scenario))


def _lines(scenario: dict[str, Any]) -> Iterator[str]:
    yield f"driver {scenario['driver']}"
    yield f"cuda {scenarios.cuda_of(scenario['driver'])}"
    peers = _peers(scenario)
    for gpu in scenario["gpus"]:
        index, (major, minor) = gpu["index"], gpu["compute_capability"]
        links, watts = next((card[1:] for card in _CARDS if card[0] in gpu["name"]), (0, 250))
        links = max(links, len(peers[index]))
        yield (
            f"gpu {index} {major} {minor} {gpu['memory_mib']} {gpu['bus_id']} {gpu_uuid(scenario, index)}"
            f" {links} {watts} {gpu['name']}"
        )
        for key in _SETTINGS:
            if key in gpu:
                yield f"set {index} {key} {int(gpu[key])}"
    for pair, link in scenario["links"].items():
        one, other = pair.split("-")
        # the contract does not say what NVLinked cards share on the bus
        ancestor = _ANCESTORS[scenario.get("ancestors", {}).get(pair, "NODE" if link.startswith("NV") else link)]
        read = p2p_read(scenario, pair)
        write = scenario.get("p2p_write", {}).get(pair, read)
        yield f"pair {one} {other} {ancestor} {_P2P[read]} {_P2P[write]}"
    for index, ends in peers.items():
        for link_index, peer in enumerate(ends):
            yield f"link {index} {link_index} {peer}"
    for function, code in scenario.get("faults", {}).items():
        yield f"fault {function} {-1 if code == 'hang' else int(code)}"


def _peers(scenario: dict[str, Any]) -> dict[int, list[int]]:
    """For each GPU what its NVLinks end at, in the order of the link indexes; -1 is a switch."""
    peers: dict[int, list[int]] = {gpu["index"]: [] for gpu in scenario["gpus"]}
    for pair, link in scenario["links"].items():
        if not link.startswith("NV"):
            continue
        count = int(link[2:])
        one, other = (int(index) for index in pair.split("-"))
        if scenario.get("nvswitch"):
            peers[one] = peers[other] = [-1] * count
        else:
            peers[one] += [other] * count
            peers[other] += [one] * count
    return peers


def compile(dest_dir: Path) -> Path:
    """The compiled library, in a directory of dest_dir named by its sources; built when it is missing."""
    sources = sorted(path for path in _SOURCES.iterdir() if path.suffix in (".c", ".h"))
    recipe = [HEADER_WHEEL, HEADER_SHA256, _FLAGS, [[path.name, path.read_text()] for path in sources]]
    return cache.once(dest_dir, "nvml", recipe, lambda directory: _build(directory, sources)) / LIBRARY


def _build(directory: Path, sources: list[Path]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        header = _header(Path(scratch))
        units = [path for path in sources if path.suffix == ".c"]
        run(["gcc", *_FLAGS, f"-I{header.parent}", "-o", directory / LIBRARY, *units])


def _header(scratch: Path) -> Path:
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    run([*download, "--dest", scratch, HEADER_WHEEL])
    wheel = next(scratch.glob("*.whl"))
    if cache.file_digest(wheel) != HEADER_SHA256:
        raise LabError(f"{wheel.name} is not the file this lab was made for", "See which index pip is set to use.")
    with zipfile.ZipFile(wheel) as archive:
        entry = next(name for name in archive.namelist() if name.endswith("/nvml.h"))
        return Path(archive.extract(entry, scratch))


def install(root: Path, scenario: dict[str, Any] | None) -> None:
    """Put the library and its text into a box's file system; None, or no GPUs: a box without a driver."""
    library = root / "usr/lib/x86_64-linux-gnu" / LIBRARY
    text = root / "etc/gpufleet-lab/nvml.conf"
    library.unlink(missing_ok=True)
    text.unlink(missing_ok=True)
    if scenario is None or not scenario["gpus"]:
        return
    for path in (library, text):
        path.parent.mkdir(parents=True, exist_ok=True)
    text.write_text(conf(scenario))
    shutil.copyfile(compile(paths.settings().cache), library)
