"""`gpufleet plan` as a user calls it: by scenario and by inventory, as tables, JSON, lines and a picture."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from tests.command import GPUFLEET, REPOSITORY, owners_folder, run

TOPOLOGIES = REPOSITORY / "lab" / "topologies"
PAIRS = str(TOPOLOGIES / "quad-3090-two-pairs.json")
MODEL = ("--model", "qwen3.8-27b-awq")
INVENTORY = """
from gpufleet.inventory import by_traits
boxes = [("h200", {"ssh_hostname": "127.0.0.1", "serve": ["qwen3.8-27b-awq"]})]
globals().update(by_traits(boxes))
"""


def plan(*arguments: str, folder: Path = REPOSITORY) -> Any:
    return run(folder, "plan", *arguments, program=GPUFLEET)


def boxes(*arguments: str, code: int = 0, folder: Path = REPOSITORY) -> list[dict[str, Any]]:
    """The boxes of the JSON document."""
    done = plan(*arguments, "--json", folder=folder)
    assert done.returncode == code, done.stdout
    document = json.loads(done.stdout)
    assert document["schema"] == 1
    found: list[dict[str, Any]] = document["boxes"]
    return found


def test_the_json_of_a_scenario_has_what_was_agreed() -> None:
    (box,) = boxes("--topology", PAIRS, *MODEL)
    assert (box["name"], box["facts_at"]) == ("quad-3090-two-pairs", None)
    assert box["traits"] == ["sm86", "nvlink", "sm86_nvlink", "nv4", "gpus4"]
    assert [(item["name"], item["gpus"], item["link"], item["port"]) for item in box["instances"]] == [
        ("qwen3.8-27b-awq", [0, 2], "NV4", 3001),
        ("qwen3.8-27b-awq-2", [1, 3], "NV4", 3002),
    ]
    for item in box["instances"]:
        assert {"model", "stack", "cuda_toolkit", "args", "env", "digest", "memory", "because"} <= set(item)
        assert item["memory"]["fits"] and item["args"]["tensor-parallel-size"] == 2
        assert item["env"]["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        assert item["env"]["CUDA_VISIBLE_DEVICES"].count("GPU-") == 2
        assert set(item["args"]) <= set(item["because"])
        assert {f"env.{name}" for name in item["env"]} <= set(item["because"])
    assert all({"code", "level", "message", "remedy"} <= set(item) for item in box["findings"])


def test_settings_are_the_strongest_and_go_into_mappings() -> None:
    given = ("--set", "serve_args.max-model-len=8192", "--set", "instances=1", "--set", "streams=2")
    given += ("--set", "serve_env.VLLM_USE_V2_MODEL_RUNNER=0")
    (box,) = boxes("--topology", PAIRS, *MODEL, *given)
    (item,) = box["instances"]
    assert (item["args"]["max-model-len"], item["because"]["max-model-len"]) == (8192, "--set")
    assert item["args"]["compilation-config"]["cudagraph_capture_sizes"] == [4, 8]
    assert item["env"]["VLLM_USE_V2_MODEL_RUNNER"] == "0"
    assert "not used: GPU 1, 2, 3" in plan("--topology", PAIRS, *MODEL, *given).stdout


def test_the_same_call_prints_the_same_in_every_process() -> None:
    call = ("plan", "--topology", PAIRS, *MODEL, "--json")
    printed = {run(REPOSITORY, *call, program=GPUFLEET, PYTHONHASHSEED=seed).stdout for seed in ("0", "1", "2")}
    assert len(printed) == 1


def test_what_was_taken_away_is_not_in_the_document() -> None:
    (box,) = boxes("--topology", PAIRS, *MODEL, "--set", "serve_args.speculative-config=null")
    for item in box["instances"]:
        assert not [key for key in [*item["args"], *item["because"]] if key.startswith("speculative-config")]


def test_several_models_share_a_box() -> None:
    (box,) = boxes("--topology", PAIRS, *MODEL, "--model", "ornith-1.5-35b-awq")
    assert [(item["model"], item["gpus"]) for item in box["instances"]] == [
        ("qwen3.8-27b-awq", [0, 2]),
        ("ornith-1.5-35b-awq", [1, 3]),
    ]


def test_without_a_model_it_says_what_the_box_is() -> None:
    (box,) = boxes("--topology", PAIRS)
    assert (box["instances"], box["idle_gpus"], box["cuda_toolkits"]) == ([], [0, 1, 2, 3], ["13-0"])


def test_an_error_of_a_rule_is_exit_3_and_can_be_silenced() -> None:
    single = ("--topology", str(TOPOLOGIES / "single-2080ti.json"), *MODEL)
    (box,) = boxes(*single, code=3)
    assert "GF401" in [item["code"] for item in box["findings"] if item["level"] == "error"]
    (box,) = boxes(*single, "--set", 'silence=["GF401"]')
    assert [item["code"] for item in box["silenced"]] == ["GF401"]
    done = plan(*single, "--set", 'silence=["model-does-not-fit"]')
    assert "silenced: GF401 model-does-not-fit (by --set)" in done.stdout


def test_the_table_names_instances_and_findings_with_their_remedy() -> None:
    done = plan("--topology", str(TOPOLOGIES / "dual-2080ti-nv2.json"), *MODEL)
    assert done.returncode == 0
    for word in ("vllm-0.27.1-sm75", "0,1", "NV2", "3001", "200,000", "GF516 runner-sync-mode", "Remedy: "):
        assert word in done.stdout


def test_explain_says_value_source_and_what_it_overrode() -> None:
    topology = ("--topology", str(TOPOLOGIES / "dual-2080ti-nv2.json"), "--model", "ornith-1.5-35b-awq")
    done = plan(*topology, "--explain", "max_num_seqs", "--set", "serve_args.max_num_seqs=2")
    assert done.stdout.splitlines() == [
        "dual-2080ti-nv2 ornith-1.5-35b-awq: max-num-seqs = 2",
        "    by --set",
        "    over 7 by model ornith-1.5-35b-awq (files/models/ornith-1.5-35b-awq.yaml)",
    ]
    done = plan(*topology, "--explain", "stack")
    assert "stack = vllm-0.27.1-sm75\n    by computed: the default for sm75" in done.stdout
    done = plan(*topology, "--explain", "dtype")
    assert "by stack vllm-0.27.1-sm75 (files/stacks/vllm-0.27.1-sm75.yaml)" in done.stdout


def test_explain_says_what_nobody_set_and_what_was_taken_away() -> None:
    given = ("--set", "streams=5", "--set", "serve_args.max-num-seqs=2", "--set", "serve_args.max-model-len=null")
    keys = ("--explain", "seed", "--explain", "streams", "--explain", "max-model-len")
    lines = plan("--topology", str(TOPOLOGIES / "dual-2080ti-nv2.json"), *MODEL, *given, *keys).stdout.splitlines()
    assert lines[0].endswith("seed is not set: the engine's own default counts")
    assert lines[1].endswith("streams = 2") and "no more than the requests" in lines[2]
    assert lines[3] == "    over 5 by --set" and "over 3 by model qwen3.8-27b-awq" in lines[4]
    assert lines[5].endswith("max-model-len is not set") and lines[6] == "    by --set"


def test_a_scenario_says_what_should_be_there(tmp_path: Path) -> None:
    page = json.loads((TOPOLOGIES / "dual-2080ti-nv2.json").read_text(encoding="utf-8"))
    file = tmp_path / "half.json"
    file.write_text(json.dumps({**page, "links": {"0-1": "NV1"}, "expect": {"nvlink": 2}}), encoding="utf-8")
    (box,) = boxes("--topology", str(file), *MODEL, code=3)
    assert [item["code"] for item in box["findings"] if item["level"] == "error"] == ["GF301"]


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    file = tmp_path / "box.svg"
    assert plan("--topology", PAIRS, *MODEL, "--svg", str(file)).returncode == 0
    assert "NV4" in "".join(ElementTree.parse(file).getroot().itertext())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give an inventory"),
        (("inventory/home.py", "--topology", PAIRS), "not both"),
        (("--topology", PAIRS, "--limit", "x"), "--limit is for an inventory"),
        (("--topology", PAIRS, *MODEL, "--explain", "x", "--json"), "--explain prints lines"),
        (("--topology", PAIRS, "--explain", "dtype"), "nothing is served there"),
        (("--topology", PAIRS, *MODEL, "--explain", "kv_cache_dtyp"), "did you mean 'kv-cache-dtype'"),
        (("--topology", "nowhere.json"), "nowhere.json: cannot be read"),
        (("--topology", PAIRS, "--model", "qwen3.8-27b"), "did you mean"),
        (("--topology", PAIRS, "--set", "streams"), "write KEY=VALUE"),
        (("--topology", PAIRS, "--model", "Qwen/Qwen3-8B"), "is no name of a page in files/models"),
        (("--topology", PAIRS, *MODEL, "--explain", ""), "no instance has it"),
        (("--topology", PAIRS, "--set", "stream=3"), "did you mean 'streams'"),
        (("--topology", PAIRS, "--set", "streams=many"), "streams"),
        (("--topology", PAIRS, "--set", 'serve_args={"max_num_seqs": 1, "max-num-seqs": 2}'), "is given twice"),
        (("--topology", PAIRS, "--set", "streams=3", "--set", "streams.x=3"), "was given another value before"),
        (("--topology", PAIRS, *MODEL, "--set", 'silence=["GF999"]'), "unknown rule 'GF999'"),
        (("--topology", PAIRS, *MODEL, "--svg", "/nowhere/x.svg"), "--svg /nowhere/x.svg"),
        (("inventory/nowhere.py",), "there is no inventory inventory/nowhere.py"),
    ],
)
def test_a_wrong_call_is_exit_2_with_the_reason(arguments: tuple[str, ...], says: str) -> None:
    done = plan(*arguments)
    assert (done.returncode, says in done.stdout) == (2, True), done.stdout


def test_an_inventory_is_planned_from_kept_facts(tmp_path: Path) -> None:
    folder = owners_folder(tmp_path, INVENTORY, group_data__sm90="serve_args = {'max-model-len': 4096}\n")
    done = plan("inventory/home.py", folder=folder)
    assert (
        done.returncode,
        "h200: nothing is known yet: run `gpufleet discover inventory/home.py`" in done.stdout,
    ) == (2, True)
    done = plan("inventory/home.py", "--limit", "sm90", folder=folder)
    assert (done.returncode, "run `gpufleet discover" in done.stdout) == (2, True)
    facts = folder / "inventory" / "facts" / "home" / "h200.json"
    facts.parent.mkdir(parents=True)
    shutil.copy(REPOSITORY / "tests" / "data" / "facts" / "dual-h200-switch.json", facts)
    (box,) = boxes("inventory/home.py", "--limit", "nv18", folder=folder)
    assert box["facts_at"] and box["traits"] == ["sm90", "nvlink", "sm90_nvlink", "nv18", "gpus2"]
    assert {item["because"]["max-model-len"] for item in box["instances"]} == {"group_data/sm90.py"}
    assert not list(folder.rglob("*.part"))


def test_damaged_facts_are_named_and_the_command_works_where_it_is_said(tmp_path: Path) -> None:
    folder = owners_folder(tmp_path, INVENTORY)
    facts = folder / "inventory" / "facts" / "home" / "h200.json"
    facts.parent.mkdir(parents=True)
    facts.write_text('{"schema": 2, "gp', encoding="utf-8")
    (tmp_path / "elsewhere").mkdir()
    done = plan("../inventory/home.py", folder=tmp_path / "elsewhere")
    assert done.returncode == 2
    damaged, unseen = done.stdout.splitlines()
    assert damaged.startswith(f"gpufleet: h200: {facts.resolve()} cannot be read as facts and is ignored (")
    assert unseen == "gpufleet: h200: nothing is known yet: run `gpufleet discover ../inventory/home.py`"


def test_a_group_by_comprehension_can_be_meant_and_has_its_settings(tmp_path: Path) -> None:
    text = INVENTORY.replace("globals()", 'large = [name for name, _ in boxes if name.endswith("200")]\nglobals()')
    folder = owners_folder(tmp_path, text, group_data__large="serve_args = {'max-model-len': 2048}\n")
    facts = folder / "inventory" / "facts" / "home" / "h200.json"
    facts.parent.mkdir(parents=True)
    shutil.copy(REPOSITORY / "tests" / "data" / "facts" / "dual-h200-switch.json", facts)
    (box,) = boxes("inventory/home.py", "--limit", "large", folder=folder)
    assert {item["because"]["max-model-len"] for item in box["instances"]} == {"group_data/large.py"}


def test_an_owners_catalogue_counts_for_a_scenario(tmp_path: Path) -> None:
    page = tmp_path / "files" / "models" / "mine.yaml"
    page.parent.mkdir(parents=True)
    page.write_text(
        "schema: 1\nname: mine\ntitle: mine\nrevision: r\nsource: {path: /srv/mine}\nserved_name: mine\n",
        encoding="utf-8",
    )
    (box,) = boxes("--topology", PAIRS, "--model", "mine", folder=tmp_path)
    assert [item["gpus"] for item in box["instances"]] == [[0, 2], [1, 3]]
    assert box["instances"][0]["memory"] == {}
