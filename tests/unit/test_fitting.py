"""Which boxes can serve a model, how long, for how many, and what to change: held against the estimate and the plan."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpufleet import catalogue, fitting, known, paths, scenario
from gpufleet.catalogue import Catalogue
from gpufleet.cli import main
from gpufleet.fit import memory_of
from gpufleet.fit_changes import laid, most
from gpufleet.fitting import Answer, Subject
from gpufleet.layers import Layer
from gpufleet.models import Model
from gpufleet.plan import Box, plan_box
from tests.unit.architectures import AWQ_27B
from tests.unit.fleets import gpu_facts, model, owner, product_stacks
from tests.unit.topologies import SCENARIOS

STACKS = product_stacks()
MODELS: Catalogue[Model] = catalogue.load(Model, "model", paths.model_folders())
AWQ, FP8 = MODELS["qwen3.8-27b-awq"], MODELS["qwen3.6-27b-dsv4pro-fp8"]
LARGE = json.loads(AWQ_27B.model_dump_json(exclude_none=True)) | {"weights_mib": 60_000}


def subject(name: str, *layers: Layer, data: dict[str, Any] | None = None, extra: Model | None = None) -> Subject:
    models = Catalogue("model", {**MODELS, **({extra.name: extra} if extra else {})})
    facts = scenario.load(SCENARIOS / f"{name}.json")
    return Subject(Box(name, data or {}, (), "inventory/x.py"), facts, {"all": list(layers)}, STACKS, models)


def asked(name: str, what: Model = AWQ, length: int | None = None, **args: Any) -> Answer:
    given = {"serve_args": {**({"max-model-len": length} if length else {}), **args}}
    return fitting.answer(subject(name), what, given)


def test_a_box_that_holds_it_says_how_long_and_for_how_many() -> None:
    found = asked("dual-2080ti-nv2")
    (room,) = found.rooms
    assert found.can and room.fits and not found.why and not found.changes
    assert (room.stack, room.link, room.gpus, room.size) == ("vllm-0.27.1-sm75", "NV2", ((0, 1),), 2)
    assert room.streams == 3
    assert room.longest_each < room.max_model_len == 200_000 <= room.longest <= AWQ.architecture.max_positions  # type: ignore[union-attr]
    assert room.most == 2


@pytest.mark.parametrize(
    ("name", "what", "streams"),
    [("dual-2080ti-nv2", AWQ, 3), ("dual-2080ti-nv2", AWQ, 8), ("dual-3090-nv4", FP8, 2), ("quad-v100-mesh", AWQ, 4)],
)
def test_what_is_said_fits_when_it_is_planned_and_one_more_does_not(name: str, what: Model, streams: int) -> None:
    """The plan itself with those numbers has that room; with one request or one block more it has not."""
    box = subject(name)

    def concurrency(requests: int, length: int) -> float:
        given = {"serve": [what.name], "streams": requests}
        given |= {"serve_args": {"max-model-len": length, "max-num-seqs": requests}}
        plan = plan_box(box.box, box.facts, {}, STACKS, MODELS, given)
        memory = plan.instances[0].memory
        assert memory is not None and memory.starts
        return memory.concurrency

    (room, *_) = fitting.answer(box, what, {"streams": streams}).rooms
    assert room.streams == streams
    limit = what.architecture.max_positions  # type: ignore[union-attr]
    for requests, length in ((1, room.longest), (streams, room.longest_each)):
        assert concurrency(requests, length) >= requests
        assert length == limit or concurrency(requests, length + 1) < requests
    assert concurrency(room.most, room.max_model_len) >= room.most
    assert concurrency(room.most + 1, room.max_model_len) < room.most + 1


def test_what_is_left_is_what_the_streams_leave_of_the_cache() -> None:
    (room, *_) = asked("quad-v100-mesh", FP8).rooms
    assert room.memory is not None
    assert room.left_mib == int(room.memory.kv_mib * (1 - room.streams / room.memory.concurrency)) > 0
    (full, *_) = asked("dual-2080ti-nv2").rooms  # not three of the full length at once
    assert full.left_mib == 0


def test_the_first_change_is_the_plainest_and_each_makes_it_fit() -> None:
    found = asked("dual-2080ti-nv2", FP8, 262_144, **{"kv-cache-dtype": "auto"})
    assert found.can is False
    titles = [change.title for change in found.changes]
    assert titles[0] == "a KV cache of fp8" or titles[0].startswith("a context of")
    for change in found.changes:
        given = {"serve": [FP8.name], "serve_args": {"max-model-len": 262_144, "kv-cache-dtype": "auto"}}
        box = subject("dual-2080ti-nv2")
        plan = plan_box(box.box, box.facts, {}, STACKS, MODELS, laid(given, change.settings))
        assert any(one.memory and one.memory.fits for one in plan.instances), change.title
        assert change.memory.fits


def test_the_longest_context_that_fits_is_a_line_to_paste() -> None:
    found = asked("dual-2080ti-nv2", FP8, 262_144)
    (shorter,) = [change for change in found.changes if change.title.startswith("a context of")]
    (line,) = shorter.lines
    length = int(re.fullmatch(r'serve_args = \{"max-model-len": (\d+)\}', line)[1])  # type: ignore[index]
    (room,) = found.rooms
    assert room.longest - 1024 < length <= room.longest
    pasted = assigned(line)
    assert pasted == {"serve_args": {"max-model-len": length}}
    again = fitting.answer(subject("dual-2080ti-nv2", Layer("group_data/all.py", pasted)), FP8, {})
    assert again.can and again.rooms[0].max_model_len == length


def assigned(text: str) -> dict[str, Any]:
    """What a file of group_data with this text assigns."""
    found: dict[str, Any] = {}
    exec(text, {}, found)
    return found


def test_images_mtp_and_more_cards_are_tried_too() -> None:
    awq = asked("quad-3090-two-pairs", FP8, 262_144, **{"kv-cache-dtype": "auto", "tensor-parallel-size": 2})
    assert awq.rooms  # a flag of ours is refused by its rule, and that is said
    assert any("GF501" in why for why in awq.why)
    given = {"tensor_parallel_size": 2, "serve_args": {"max-model-len": 262_144, "kv-cache-dtype": "auto"}}
    found = fitting.answer(subject("quad-3090-two-pairs"), FP8, given)
    titles = [change.title for change in found.changes]
    assert titles == sorted(titles, key=titles.index)
    assert "4 GPUs to an instance" in titles and titles[0] == "a KV cache of fp8"
    (more,) = [change for change in found.changes if change.title == "4 GPUs to an instance"]
    assert more.lines == ["tensor_parallel_size = 4"] and more.memory.max_model_len == 262_144


def test_fewer_requests_are_named_where_their_graphs_take_what_lacks() -> None:
    found = fitting.answer(subject("dual-2080ti-nv2"), FP8, {"streams": 100})
    (fewer,) = [change for change in found.changes if "streams" in change.settings]
    streams = fewer.settings["streams"]
    assert 1 <= streams < 100
    assert fitting.answer(subject("dual-2080ti-nv2"), FP8, {"streams": streams}).can
    assert fitting.answer(subject("dual-2080ti-nv2"), FP8, {"streams": streams + 1}).can is False


def test_several_together_where_no_single_one_is_enough() -> None:
    """A model of which only a few MiB are left beside the weights: no single change is enough."""
    shape = LARGE | {"weights_mib": 20_000}
    tight = model("tight", architecture=shape, streams=4, args={"max-model-len": 262_144, **mtp(3)})
    found = fitting.answer(subject("single-2080ti", extra=tight), tight, {})
    assert found.can is False
    for change in found.changes:
        again = fitting.answer(subject("single-2080ti", extra=tight), tight, change.settings)
        assert again.can, change.title


def mtp(tokens: int) -> dict[str, Any]:
    return {"speculative-config": {"method": "mtp", "num_speculative_tokens": tokens}}


def test_a_cache_of_one_byte_is_of_a_kind_that_goes_with_the_checkpoint() -> None:
    """FP8 is refused for compressed-tensors on SM86 (GF542)."""
    packed = AWQ.architecture.model_dump() | {"quantization": "compressed-tensors"}  # type: ignore[union-attr]
    args = {"kv-cache-dtype": "auto", "max-model-len": 262_144, "language-model-only": True}
    tight = model("tight", architecture=packed | {"weights_mib": 28_000}, args=args)
    found = fitting.answer(subject("dual-3090-nv4", extra=tight), tight, {})
    assert found.can is False
    assert found.changes[0].lines == ['serve_args = {"kv-cache-dtype": "int8_per_token_head"}']


def test_a_box_of_which_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inventory = (
        "from gpufleet.inventory import by_traits\n"
        'globals().update(by_traits([("new", {"ssh_hostname": "192.0.2.1"})]))\n'
    )
    monkeypatch.chdir(owner(tmp_path, inventory__home=inventory))
    done = call(AWQ.name, "inventory/home.py")
    assert done.exit_code == 2
    assert "new: nothing is known yet: run `gpufleet discover inventory/home.py`" in done.output


def test_what_no_setting_mends_has_no_change() -> None:
    huge = model("huge", architecture=LARGE, args={"max-model-len": 32_768})
    found = fitting.answer(subject("single-2080ti", extra=huge), huge, {})
    assert found.can is False and found.changes == []
    assert any("GF401" in why for why in found.why)


def test_a_refused_box_cannot_serve_it_whatever_its_memory() -> None:
    found = asked("dual-2080ti-nv2", **{"gpu-memory-utilization": 92})
    assert found.can is False
    assert any("GF407" in why for why in found.why)


def test_of_cpus_nothing_is_said() -> None:
    found = asked("cpu-only")
    assert found.can is None and found.rooms[0].fits is None


def test_the_entry_that_the_box_has_for_it_counts() -> None:
    entry = {"model": AWQ.name, "args": {"max-model-len": 50_000}, "tensor_parallel_size": 2}
    box = subject("quad-3090-two-pairs", data={"serve": ["qwen3-0.6b", entry]})
    found = fitting.answer(box, AWQ, {})
    assert [room.max_model_len for room in found.rooms] == [50_000]
    assert found.rooms[0].gpus == ((0, 2), (1, 3))


def test_graphs_are_counted_for_the_requests_that_are_asked_about() -> None:
    box = subject("dual-2080ti-nv2")
    plan = plan_box(box.box, box.facts, {}, STACKS, MODELS, {"serve": [AWQ.name]})
    (one,) = plan.instances
    args = fitting.with_requests(one, 2)
    assert args["compilation-config"]["cudagraph_capture_sizes"] == [4, 8]
    assert args["max-num-seqs"] == 2
    assert one.args["compilation-config"]["cudagraph_capture_sizes"] == [4, 8, 12]
    assert memory_of(AWQ, one.stack, box.facts["gpus"], args) != one.memory


def test_sizes_that_an_owner_gave_stay() -> None:
    box = subject("dual-2080ti-nv2")
    given = {"serve": [AWQ.name], "serve_args": {"compilation-config": {"cudagraph_capture_sizes": [4, 12]}}}
    (one,) = plan_box(box.box, box.facts, {}, STACKS, MODELS, given).instances
    assert fitting.with_requests(one, 1)["compilation-config"]["cudagraph_capture_sizes"] == [4, 12]


def test_most_is_the_last_that_holds() -> None:
    assert [most(lambda number, edge=edge: number <= edge, 10) for edge in (0, 1, 7, 10, 99)] == [0, 1, 7, 10, 10]


# The command.


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["models", "fit", *arguments])


def topology(name: str) -> str:
    return str(SCENARIOS / f"{name}.json")


def test_the_command_prints_a_line_for_a_scenario() -> None:
    done = call(AWQ.name, "--topology", topology("dual-2080ti-nv2"))
    assert done.exit_code == 0, done.output
    row = done.stdout.splitlines()[1]
    assert row.split()[:3] == ["dual-2080ti-nv2", "yes", "vllm-0.27.1-sm75"]
    assert "262,144" in row and "2 × 200,000" in row


def test_the_command_ends_with_3_when_nothing_can_and_says_what_would() -> None:
    flag = "serve_args.max-model-len=262144"
    done = call(FP8.name, "--topology", topology("dual-2080ti-nv2"), "--set", flag)
    assert done.exit_code == 3, done.output
    assert "dual-2080ti-nv2: it fits with a context of 234,496 tokens" in done.stdout
    assert '\n    serve_args = {"max-model-len": 234496}\n' in done.stdout


def test_the_command_says_why_nothing_helps() -> None:
    done = call("ornith-1.5-35b-awq", "--topology", topology("single-2080ti"))
    assert done.exit_code == 3
    assert "its weights take 24,039 MiB of each card" in done.stdout
    assert "no box can serve it, whatever is set" in done.stdout


def test_json_has_what_the_table_has() -> None:
    done = call(AWQ.name, "--topology", topology("single-2080ti"), "--json", "--set", "serve_args.max-model-len=8192")
    (box,) = json.loads(done.stdout)["boxes"]
    assert box["name"] == "single-2080ti"
    assert set(box) == {"name", "can", "rooms", "why", "changes", "idle_gpus"}
    assert {"longest", "longest_each", "most_requests", "left_mib"} <= set(box["rooms"][0])


def test_a_fleet_is_one_table_and_another_box_of_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inventory = (
        "from gpufleet.inventory import by_traits\n"
        'boxes = [(name, {"ssh_hostname": f"192.0.2.{n}"}) for n, name in enumerate(["small", "pair"])]\n'
        "globals().update(by_traits(boxes))\n"
    )
    owner(tmp_path, inventory__home=inventory)
    folder = tmp_path / "inventory" / "facts" / "home"
    for box, count in (("small", 1), ("pair", 2)):
        assert known.keep(folder, box, gpu_facts(count=count))
    monkeypatch.chdir(tmp_path)
    done = call(AWQ.name, "inventory/home.py")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:3]] == [["small", "no"], ["pair", "yes"]]
    assert "small: or put it on pair." in lines
    done = call(AWQ.name, "inventory/home.py", "--limit", "small")
    assert done.exit_code == 3 and "pair" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing-such", "--topology", topology("cpu-only")], "unknown model 'nothing-such'"),
        ([AWQ.name], "give an inventory"),
        ([AWQ.name, "x.py", "--topology", "y.json"], "give an inventory"),
        ([AWQ.name, "--topology", topology("cpu-only"), "--limit", "x"], "--limit is for an inventory"),
        ([AWQ.name, "--topology", topology("cpu-only"), "--set", "strems=3"], "strems"),
    ],
)
def test_a_wrong_call_ends_with_2(arguments: list[str], said: str) -> None:
    done = call(*arguments)
    assert done.exit_code == 2
    assert said in done.output
