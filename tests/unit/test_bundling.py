"""A bundle has everything that a report of a problem needs, and none of what was planted in any source of it."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpufleet import bundling, bundling_file, bundling_names
from gpufleet.anonymity_text import Disguise
from gpufleet.bundling_names import Controller
from gpufleet.catalogue import Catalogue
from gpufleet.errors import ConfigError
from gpufleet.fleet import Fleet
from gpufleet.layers import Layer
from gpufleet.plan import Box, plan_box
from gpufleet.planning import checked_plan
from tests.unit.fleets import gpu_facts, model, stack
from tests.unit.planted import Planted

SOURCES = (
    "facts",
    "settings",
    "env",
    "log",
    "journal",
    "hosts",
    "argv",
    "state",
    "report",
    "status",
    "fleet",
    "caller",
)
DIGEST = "aaaa000000000000"


def planted() -> dict[str, Planted]:
    return {name: Planted(number) for number, name in enumerate(SOURCES, 1)}


def facts_of(own: Planted) -> dict[str, Any]:
    facts = gpu_facts(hostname=own.host, machine_id=own.machine_id)
    facts["gpus"][0]["uuid"] = own.card
    facts["gpus"][0]["processes"] = [{"pid": 7, "memory_mib": 9, "name": own.text(), "kind": "compute"}]
    facts["ports"] = {"8000": {"pid": 7, "command": own.text(), "unit": None}}
    facts["errors"] = [{"source": "kernel_log", "message": line} for line in [*own.lines(), f"of {own.uuid}"]]
    facts["nvidia_packages"] = {
        "libcudnn9-cuda-12": {"version": "9.13.0.50-1", "origin": f"http://{own.ipv4}/debian", "candidate": None}
    }
    facts["instances"] = {"tiny": {"current": DIGEST, "releases": [DIGEST], "gated": DIGEST, "held": {"by": own.user}}}
    facts["lock"] = {"who": own.user, "host": own.host, "id": own.uuid}
    return facts


def fleet_of(found: dict[str, Planted], root: Path) -> Fleet:
    ours, other, environment = found["settings"], found["fleet"], found["env"]
    data = {
        "stack": "engine",
        "serve": ["tiny"],
        "serve_args": {"api-key": ours.password, "served-model-name": ours.text()},
        "serve_env": {"MY_NOTE": environment.password, "VLLM_NOTE": environment.text(), "HF_TOKEN": environment.token},
        "mirrors": {"pypi": f"http://{ours.host}.{ours.domain}/simple/"},
    }
    boxes = {
        "kellerbox": Box("kellerbox", data, (), f"inventory/home.py: {ours.user}"),
        other.host: Box(other.host, {}, (), "inventory/home.py"),
    }
    addresses = {
        "kellerbox": {"ssh_hostname": ours.ipv4, "ssh_user": ours.user, "_sudo_password": ours.password},
        other.host: {"ssh_hostname": other.inside, "ssh_user": other.user, "ssh_password": other.password},
    }
    hub = {"hub": f"{ours.hub}/private", "commit": "0" * 40, "files": {"config.json": {"size": 5, "sha256": "0" * 64}}}
    engines = Catalogue("stack", {"engine": stack("engine", arch=["sm75"])})
    models = Catalogue("model", {"tiny": model(), "own": model("own", source=hub)})
    layers = {"all": [Layer(f"group_data/all.py of {ours.home}", {"silence": []})]}
    return Fleet(root, root / "inventory/home.py", boxes, addresses, layers, engines, models)


def sources_of(found: dict[str, Planted], fleet: Fleet) -> bundling.Sources:
    facts = facts_of(found["facts"])
    plan = plan_box(fleet.boxes["kellerbox"], facts, fleet.layers, fleet.stacks, fleet.models, {})
    events = [{"at": "2026-11-29T12:30:00Z", "event": "activation", "by": found["journal"].user}]
    events += [{"event": "gate", "gate": {"said": line}} for line in found["journal"].lines()]
    evidence = {
        "identity": found["hosts"].identity(),
        "state": {"instances": {"tiny": {"held": {"by": f"{found['state'].user}@{found['state'].host}"}}}}
        | {"said": found["state"].lines(), "history": [{"tokens_per_second": 41.0}]},
        "events": events,
        "logs": {"tiny": [*found["log"].lines(), found["hosts"].text(), found["caller"].text(), found["fleet"].text()]},
        "argv": {"tiny": ["vllm", "serve", *found["argv"].text().split(), "--api-key", found["argv"].password]},
        "packages": {"vllm-0.27.1-sm75-0123456789ab": {"nvidia-cublas-cu12": "12.8.4.1", "vllm": "0.27.1"}},
        "cmdline": f"root=UUID={found['argv'].uuid} ip={found['argv'].ipv4}",
        "errors": [found["hosts"].text()],
    }
    report = {
        "who": found["report"].user,
        "host": found["report"].host,
        "boxes": {"kellerbox": {"failure": found["report"].lines()}, found["fleet"].host: {"traits": []}},
    }
    status = {"name": "kellerbox", "problems": found["status"].lines(), "lock": {"who": found["status"].user}}
    versions = {"gpufleet": "0.1.0", "kit": "gpufleet-kit-0123456789ab.pyz"}
    at = "2026-11-29T17:40:00Z"
    return bundling.Sources(
        "kellerbox", at, versions, facts, True, checked_plan(plan), status, evidence, report, [found["hosts"].text()]
    )


def bundle(found: dict[str, Planted], root: Path) -> tuple[dict[str, str], Disguise]:
    fleet, disguise = fleet_of(found, root), Disguise(bundling.vocabulary())
    sources = sources_of(found, fleet)
    caller = found["caller"]
    controller = Controller(
        (caller.user, caller.home), (caller.host, f"{caller.host}.{caller.domain}"), (caller.password,)
    )
    assert sources.planned
    bundling_names.acquaint(
        disguise, fleet, "kellerbox", sources.facts, sources.evidence, sources.planned.plan, controller
    )
    return bundling.disguised(bundling.raw(sources), sources.missing, disguise), disguise


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], Disguise]:
    return bundle(planted(), tmp_path_factory.mktemp("fleet"))


@pytest.mark.parametrize("source", SOURCES)
def test_nothing_that_was_planted_is_in_the_bytes_of_the_file(
    source: str, made: tuple[dict[str, str], Disguise]
) -> None:
    texts, disguise = made
    packed = bundling_file.packed(texts)
    data = packed.lower() + gzip.decompress(packed).lower()
    thing = planted()[source]
    # full names of people nobody can tell but the box, by its list of users
    kinds = {name: value for name, value in thing.all().items() if name != "person" or source == "hosts"}
    assert {name for name, value in kinds.items() if value.lower().encode() in data} == set()
    assert {name for name, text in texts.items() if disguise.left(text)} == set()


def test_the_lines_that_were_planted_are_in_the_sources(tmp_path: Path) -> None:
    """Else the test above could not fail."""
    found = planted()
    pages = json.dumps(bundling.raw(sources_of(found, fleet_of(found, tmp_path))), ensure_ascii=False).lower()
    assert {source for source, thing in found.items() if thing.fingerprint.lower() not in pages} == set()


def test_all_of_it_is_there_and_fit_to_be_read(made: tuple[dict[str, str], Disguise]) -> None:
    texts, _ = made
    pages = {"README.txt", "versions.json", "facts.json", "plan.json", "plan.txt", "settings.json", "status.json"}
    pages |= {"state.json", "journal.jsonl", "gates.json", "processes.json", "report.json", "logs/tiny.txt"}
    assert set(texts) == pages
    for name in pages:
        if name.endswith(".json"):
            json.loads(texts[name])
    events = [json.loads(line) for line in texts["journal.jsonl"].splitlines()]
    assert events[0]["event"] == "activation" and events[0]["by"].startswith("user-")
    versions = json.loads(texts["versions.json"])
    assert versions["runtimes"]["vllm-0.27.1-sm75-0123456789ab"]["packages"]["nvidia-cublas-cu12"] == "12.8.4.1"
    assert versions["nvidia_packages"] == {"libcudnn9-cuda-12": "9.13.0.50-1"}
    assert versions["driver"]["version"] == "580.159.03"
    facts, plan = json.loads(texts["facts.json"]), json.loads(texts["plan.json"])["boxes"][0]
    assert facts["hostname"] == plan["name"] == json.loads(texts["status.json"])["name"] == "box-1"
    assert facts["gpus"][0]["uuid"] == "GPU-1" and facts["instances"]["tiny"]["current"] == "release-1"
    assert json.loads(texts["report.json"])["boxes"].keys() == {"box-1"}
    assert texts["plan.txt"].startswith("box ") and "box-1" in texts["plan.txt"]
    assert "look it through" in texts["README.txt"] and "logs/" in texts["README.txt"]


def test_what_could_not_be_had_is_said(tmp_path: Path) -> None:
    found = planted()
    sources = bundling.Sources("kellerbox", "2026-11-29T17:40:00Z", {}, missing=["kellerbox: there is no connection"])
    disguise = Disguise()
    bundling_names.acquaint(disguise, fleet_of(found, tmp_path), "kellerbox", None, None, None, Controller())
    texts = bundling.disguised(bundling.raw(sources), sources.missing, disguise)
    assert set(texts) == {"README.txt", "versions.json"}
    assert "    box-1: there is no connection\n" in texts["README.txt"]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(numbers=st.lists(st.integers(13, 250), min_size=len(SOURCES), max_size=len(SOURCES), unique=True))
def test_whatever_is_planted_is_not_in_the_bytes(tmp_path: Path, numbers: list[int]) -> None:
    found = {name: Planted(number) for name, number in zip(SOURCES, numbers, strict=True)}
    texts, _ = bundle(found, tmp_path)
    data = gzip.decompress(bundling_file.packed(texts)).lower()
    left = [
        (source, kind)
        for source, thing in found.items()
        for kind, value in thing.all().items()
        if (kind != "person" or source == "hosts") and value.lower().encode() in data
    ]
    assert left == []


# the file


def test_the_file_tells_nothing_of_who_made_it(tmp_path: Path) -> None:
    path = tmp_path / "of-kellerbox.tar.gz"
    bundling_file.write(path, bundling_file.packed({"README.txt": "x\n"}))
    data = path.read_bytes()
    assert b"kellerbox" not in data and data == bundling_file.packed({"README.txt": "x\n"})
    assert path.stat().st_mode & 0o777 == 0o600 and os.listdir(tmp_path) == [path.name]
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        (member,) = archive.getmembers()
        assert (member.name, member.uid, member.uname, member.mtime) == ("bundle/README.txt", 0, "", 0)


def test_a_file_that_is_there_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_text("mine")
    with pytest.raises(ConfigError, match="is there already"):
        bundling_file.write(path, b"new")
    assert path.read_text() == "mine" and os.listdir(tmp_path) == ["x.tar.gz"]
    with pytest.raises(ConfigError, match="can be written"):
        bundling_file.write(tmp_path / "nowhere" / "x.tar.gz", b"new")
