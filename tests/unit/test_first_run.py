"""The screen before a first run: boxes that are alike told together, what comes from where, how long it takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpufleet import first_run, first_run_files, first_run_time, known
from gpufleet.changes import Changes, changes, untouched
from gpufleet.first_run import Subject
from gpufleet.first_run_files import Coming, coming
from gpufleet.first_run_time import Rates, about
from gpufleet.models import Model
from gpufleet.plan import BoxPlan
from gpufleet.rules import Finding
from gpufleet.wheelhouse import rate
from gpufleet.wheelhouse.items import FromUrl, Item
from gpufleet.wheelhouse.store import Store
from tests.unit.fleets import cpu_facts, gpu_facts, model, plan, product_stacks, stack

ROOM = stack(disk_mib=3000)
WARNING = Finding("GF607", "warning", "the CPU governor is powersave", "performance", "governor-powersave")
ERROR = Finding("GF999", "error", "cannot be", "mend it", "other")


def subject(name: str = "box-1", facts: dict[str, Any] | None = None, login: str = "root", **more: Any) -> Subject:
    findings: Sequence[Finding] = more.pop("findings", [])
    made = plan(facts or cpu_facts(), **{"stacks": [ROOM], **more})
    made = replace(made, box=replace(made.box, name=name))
    return Subject(made, changes(made), findings, login)


def told(*subjects: Subject) -> str:
    return "\n".join(first_run.lines(subjects))


# Which boxes


@pytest.mark.parametrize(
    "ours",
    [
        {"runtimes": {"a-1": {"complete": False}}},
        {"models": {"tiny/r1": {"complete": True}}},
        {"instances": {"tiny": {}}},
        {"user": {"exists": True}},
        {"apt": {"installed": ["cuda-nvcc-13-0"], "held": [], "upgrades": "missing"}},
        {"host": {"settings": "0" * 16, "unit": "current", "refused": {}}},
        {"models_home": {"link": "/mnt/big", "empty": True, "ours": True}},
    ],
    ids=lambda ours: next(iter(ours)),
)
def test_a_box_with_anything_of_ours_is_no_new_one(ours: dict[str, Any]) -> None:
    bare = {"apt": {"installed": [], "held": [], "upgrades": "missing"}, "host": {"unit": "missing"}}
    assert untouched(cpu_facts()) and untouched(cpu_facts(**bare))
    assert not untouched(cpu_facts(**bare | ours))


# Box by box


def test_one_box_is_told_whole() -> None:
    facts = gpu_facts(hosts_entry=False, host={"settings": None, "unit": "missing", "refused": {}})
    own = stack(arch=["sm75"], cuda_toolkit="13-0", disk_mib=3000, apt=["g++"])
    findings = [WARNING, ERROR, WARNING]
    data = {"instances": 2, "tensor_parallel_size": 1}
    text = told(subject(facts=facts, login="ops, root by sudo", stacks=[own], findings=findings, data=data))
    assert text.splitlines() == [
        "",
        "2 × a card (sm75 nvlink sm75_nvlink nv2 gpus2), debian 12",
        "  box     box-1",
        "  login   ops, root by sudo",
        "  apt     cuda-toolkit-13-0 g++ (and NVIDIA's apt repository)",
        "  sets    put box into /etc/hosts",
        "  stack   engine-cpu, CUDA toolkit 13.0: 2.9 GiB",
        "  serves  tiny on GPU 0, port 8000: 5 MiB",
        "          tiny as tiny-2 on GPU 1, port 8001: 5 MiB",
        "  disk    /opt/gpufleet (ext4): 2.9 GiB of 97.7 GiB free",
        "  warns   GF607 governor-powersave",
    ]


def test_boxes_that_get_the_same_are_told_together_with_the_least_that_is_free() -> None:
    disks = {"/opt/gpufleet": {"free_mib": 9000, "total_mib": 9999, "filesystem": "ext4"}}
    alike = [subject(f"box-{number}") for number in range(7)] + [subject("small", cpu_facts(disks=disks))]
    text = told(*alike, subject("warned", findings=[WARNING]))
    assert "8 boxes: no GPU (cpu), debian 12" in text
    assert "  boxes   box-0, box-1, box-2, box-3 and 4 more" in text
    assert "2.9 GiB of 8.8 GiB free, the least of them" in text
    assert text.count("no GPU (cpu), debian 12") == 2, "another finding is another kind"


def test_another_disk_for_models_is_told_apart() -> None:
    big = {"free_mib": 900_000, "total_mib": 999_000, "filesystem": "xfs", "mount": "/opt/gpufleet/models"}
    home = {"free_mib": 9000, "total_mib": 9999, "filesystem": "ext4", "mount": "/"}
    text = told(subject(facts=cpu_facts(disks={"/opt/gpufleet": home, "/opt/gpufleet/models": big})))
    assert "  disk    /opt/gpufleet (/, ext4): 2.9 GiB of 8.8 GiB free" in text
    assert "          /opt/gpufleet/models (/opt/gpufleet/models, xfs): 5 MiB of 878.9 GiB free" in text


def test_a_model_that_is_there_or_linked_is_not_counted_as_coming() -> None:
    there = subject(facts=cpu_facts(models={"tiny/r1": {"complete": True}}))
    assert "tiny on the CPU, port 8000: its files are there" in told(there)
    linked = subject(models=[model(source={"path": "/srv/tiny"})])
    assert "tiny on the CPU, port 8000: its files are linked in /srv/tiny" in told(linked)


def test_units_that_it_takes_the_place_of_are_named() -> None:
    one = subject()
    (change,) = one.changes.instances
    taking = replace(change, replaces=["vllm.service"])
    text = told(replace(one, changes=replace(one.changes, instances=[taking])))
    assert "  instead vllm.service: stopped, put back where the gate fails, else disabled" in text
    assert "instead" not in told(one)


def test_a_hundred_boxes_fit_a_screen_whether_they_are_alike_or_not() -> None:
    alike = [subject(f"box-{number}") for number in range(100)]
    assert len(first_run.lines(alike)) < first_run.HEIGHT
    unlike = [subject(f"box-{number}", login=f"user-{number}", findings=[WARNING]) for number in range(100)]
    found = first_run.lines(unlike)
    assert len(found) < first_run.HEIGHT
    assert "box-0: no GPU (cpu), debian 12: engine-cpu: 2.9 GiB; tiny on the CPU" in found[1]
    assert "/opt/gpufleet: 2.9 GiB of 97.7 GiB free" in found[1] and "GF607" in found[1]
    assert found[-1].strip() == "and 70 more boxes of 70 other kinds: `gpufleet plan` has each"


# What comes from where


def pair(more: Model | None = None, **facts: Any) -> tuple[BoxPlan, Changes]:
    made = plan(cpu_facts(**facts), stacks=[stack(lock=None, uv=None)], models=[more or model()])
    return made, changes(made)


def test_a_file_is_fetched_once_and_goes_to_each_box(tmp_path: Path) -> None:
    found = coming({"a": pair(), "b": pair()}, Store(tmp_path))
    assert (found.lacking, found.have, found.unknown) == (5 << 20, 0, [])
    assert found.to_box == {"a": 5 << 20, "b": 5 << 20}


def test_what_the_store_has_whole_or_in_part_is_not_fetched(tmp_path: Path) -> None:
    store, content = Store(tmp_path), b"x" * 1000
    item = Item("config.json", "0" * 64, 1000, FromUrl("http://192.0.2.1"))
    store.path(item).parent.mkdir(parents=True)
    store.path(item).write_bytes(content)
    small = model(source={"http": "http://192.0.2.1/", "files": {"config.json": {"size": 1000, "sha256": "0" * 64}}})
    found = coming({"a": pair(small)}, store)
    assert (found.lacking, found.have) == (0, 1000)
    store.path(item).rename(store.path(item).with_name("config.json.part"))
    store.path(item).with_name("config.json.part").write_bytes(content[:300])
    found = coming({"a": pair(small)}, store)
    assert (found.lacking, found.have) == (700, 300)


def test_a_runtime_counts_its_lock_and_what_is_repacked_and_names_what_has_no_size(tmp_path: Path) -> None:
    own = product_stacks()["vllm-0.27.1-cpu"]
    first, *others = own.wheels
    unsized = own.model_copy(update={"wheels": [first.model_copy(update={"size": None}), *others]})
    chosen = {"stack": own.name}
    with_size, without = plan(cpu_facts(), chosen, stacks=[own]), plan(cpu_facts(), chosen, stacks=[unsized])
    one, other = (coming({"a": (each, changes(each))}, Store(tmp_path)) for each in (with_size, without))
    assert one.unknown == [] and other.unknown == [first.filename]
    assert one.lacking - other.lacking == first.size
    # the size is for this alone: another one makes no other runtime
    assert with_size.runtimes[0].name == without.runtimes[0].name


def test_the_room_of_a_store_that_is_not_made_yet_is_that_of_its_disk(tmp_path: Path) -> None:
    there, later = first_run_files.free(tmp_path), first_run_files.free(tmp_path / "a" / "b")
    assert there is not None and later is not None and there > 0 and later > 0
    assert not (tmp_path / "a").exists()


def test_a_lock_that_cannot_be_read_does_not_end_the_run_here(tmp_path: Path) -> None:
    made = plan(cpu_facts(), stacks=[stack()])
    broken = replace(made.runtimes[0], python="3.99")
    broken.__dict__["name"] = "engine-cpu-0"  # it is computed of the lock, too
    found = coming({"a": (made, Changes(runtimes=[broken]))}, Store(tmp_path))
    assert (found.lacking, found.have) == (0, 0)


# How long


def test_the_rate_is_that_of_the_last_fetch_that_told_something(tmp_path: Path) -> None:
    assert rate.last(tmp_path) is None
    rate.keep(tmp_path, 1000, 1.0)
    assert rate.last(tmp_path) is None, "of a small one nothing can be told"
    rate.keep(tmp_path, 100 << 20, 2.0)
    assert rate.last(tmp_path) == pytest.approx(50 << 20)
    rate.keep(tmp_path / "gone", 100 << 20, 2.0)
    for wrong in ("", "[]", '{"bytes": 1, "seconds": 0}', '{"bytes": "a", "seconds": 1}'):
        (tmp_path / rate.FILE).write_text(wrong)
        assert rate.last(tmp_path) is None


def test_boxes_that_give_to_each_other_wait_for_the_largest_only() -> None:
    found = Coming(lacking=int(20e6), to_box={"a": int(100e6), "b": int(300e6)})
    rates = Rates(outside=10e6, lan=100e6)
    assert first_run_time.fetching(found, rates) == 2
    assert first_run_time.spreading(found, rates, peers=True) == 3
    assert first_run_time.spreading(found, rates, peers=False) == 4
    assert first_run_time.spreading(Coming(), rates, peers=True) == 0


def test_what_is_compiled_takes_the_cores_of_one_box_and_is_had_by_all() -> None:
    step = {"name": "kernel", "script": "flashqla.py", "into": "a"}
    made = plan(cpu_facts(), stacks=[stack(compile=[step])])
    boxes = [(made, changes(made))] * 3
    first, all_cores = first_run_time.INSTALL, 8
    compiled = first + first_run_time.COMPILE_OF_ONE_CORE / all_cores
    assert first_run_time.installing(boxes, []) == first + compiled
    assert first_run_time.installing(boxes, [made.runtimes[0].name]) == first
    assert first_run_time.installing([], []) == 0


def test_a_start_takes_what_it_took_the_last_time_in_each_wave() -> None:
    made = plan(cpu_facts())
    boxes = [(made, changes(made))]

    def report(seconds: float) -> dict[str, Any]:
        instance = {"stack": "engine-cpu", "model": "tiny", "gate": {"seconds": seconds}}
        return {"boxes": {"other": {"instances": {"tiny": instance, "idle": {"gate": None}}}}}

    assert first_run_time.starting(boxes, [], 2) == 2 * first_run_time.START
    assert first_run_time.starting(boxes, [report(90), report(40.5), {}], 2) == 81
    assert first_run_time.starting([], [], 0) == 0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (12, "under a minute"),
        (61, "about 2 min"),
        (19 * 60, "about 19 min"),
        (21 * 60, "about 25 min"),
        (5000, "about 85 min"),
        (5400, "about 1 h 30 min"),
        (7200, "about 2 h 00 min"),
    ],
)
def test_a_time_is_told_no_finer_than_it_holds(seconds: float, words: str) -> None:
    assert about(seconds) == words


def test_facts_that_were_kept_tell_the_same() -> None:
    """`untouched` asks nothing that `gpufleet plan` would not know."""
    kept = known.stable(cpu_facts(runtimes={"a-1": {"complete": True}}))
    assert not untouched(json.loads(json.dumps(kept)))
