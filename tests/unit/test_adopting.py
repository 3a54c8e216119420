"""From a service that runs by hand to a `serve` entry: the three boxes of the recipes, and what else owners do."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpufleet import adopting_box, adopting_unit, adopting_view
from gpufleet.adopting import Adopted
from gpufleet.adopting_box import Looked
from gpufleet.models import Model
from gpufleet.plan import plan_box
from hostkit import model_check
from tests.unit import tiny_checkpoint
from tests.unit.adopted_boxes import BOXES, SYSTEMD, UNIT, HandMade, by_hand, facts, fleet, qwen_awq
from tests.unit.fleets import cpu_facts
from tests.unit.test_reference_boxes import BOX_A, BOX_B, BOX_C, ENV_A, ENV_B, ENV_C

SERVE = ["/opt/vllm/bin/python", "/opt/vllm/bin/vllm", "serve"]
SYSTEM = "/system.slice/vllm.service"


@pytest.fixture(autouse=True)
def readable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test's own folder is closed to others, and so would be every model in it."""
    monkeypatch.setattr(model_check, "closed", lambda path: [])


def text_of(model: Model) -> str:
    return model.path.read_text(encoding="utf-8")


def adopted(box: HandMade, known: dict[str, Any], **data: Any) -> Looked:
    found = box.look()
    return adopting_box.adopt_all(fleet(box.root, "box", **data), "box", known, found["services"], text_of)


def one(looked: Looked) -> Adopted:
    (found,) = looked.services
    assert found.why_not is None, found.why_not
    return found


def told(found: Adopted, kind: str) -> dict[str, str]:
    """What is said of each key of a kind, with the old and the new value in front."""
    return {item.key: f"{item.old} {item.new} {item.why}" for item in found.items if item.kind == kind}


def small(
    root: Path,
    flags: Sequence[str],
    env: dict[str, str] | None = None,
    version: str = "0.27.1",
    cgroup: str = SYSTEM,
    **unit: Any,
) -> HandMade:
    """A box that serves a tiny model."""
    box = HandMade(root)
    box.unit("vllm.service", UNIT.format(command="/opt/vllm/bin/vllm serve", more=unit.pop("more", "")), **unit)
    box.process(812, [*SERVE, "/srv/models/Tiny-Model", *flags], {**SYSTEMD, **(env or {})}, cgroup, [8000])
    box.runtime("/opt/vllm", vllm=version)
    tiny_checkpoint.checkpoint(root / "srv/models/Tiny-Model")
    return box


@pytest.mark.parametrize(
    ("name", "model", "args", "env"),
    [
        ("A1", "qwen3.8-27b-awq", BOX_A, ENV_A),
        ("B", "qwen3.6-27b-dsv4pro-fp8", BOX_B, ENV_B),
        ("C", "qwen3.8-27b-awq-mtp", BOX_C, ENV_C),
    ],
)
def test_a_reference_box_is_adopted_with_its_flags(
    tmp_path: Path, name: str, model: str, args: dict[str, Any], env: dict[str, str]
) -> None:
    found = one(adopted(by_hand(tmp_path, name), facts(BOXES[name][0])))
    assert found.instance is not None and found.page is not None
    assert found.instance.args == args
    assert {key: found.instance.env[key] for key in env} == env
    stack = {"stack": "vllm-0.24.0-sm75"} if name == "B" else {}
    assert found.entry == {"model": model, **stack, "port": args["port"], "replaces": ["vllm.service"]}
    assert found.page.model.source.path == BOXES[name][1]
    assert found.page.text is not None and found.page.problems == ()


def test_what_is_superseded_of_box_b_is_named(tmp_path: Path) -> None:
    found = one(adopted(by_hand(tmp_path, "B"), facts("dual-2080ti-nv2")))
    changed = told(found, "changed")
    assert changed["unit.Restart"].startswith("always on-failure")
    assert changed["unit.StandardOutput"].startswith("append:/var/log/vllm.log journal")
    assert "stubs are for linking" in changed["env.LD_LIBRARY_PATH"]
    assert "FlashQLA is a package" in changed["env.PYTHONPATH"]
    assert "mirrors.hub" in changed["env.HF_ENDPOINT"]
    assert changed["unit.User"].startswith("ai gpufleet")
    assert "UUID" in told(found, "added")["env.CUDA_VISIBLE_DEVICES"]
    assert "check_flashinfer" in told(found, "left")["unit.ExecStartPre"]


def test_what_is_superseded_of_box_c_is_named(tmp_path: Path) -> None:
    found = one(adopted(by_hand(tmp_path, "C"), facts("dual-3090-nv4")))
    assert '{"mode": 0}' in told(found, "left")["env.VLLM_TORCH_COMPILE_LEVEL"]
    added = told(found, "added")
    assert "400" in added["enable-auto-tool-choice"]
    assert "multiples of 4" in added["compilation-config.cudagraph_capture_sizes"]


def test_every_old_flag_is_the_same_or_named(tmp_path: Path) -> None:
    for name in BOXES:
        found = one(adopted(by_hand(tmp_path / name, name), facts(BOXES[name][0])))
        keys = {item.key for item in found.items}
        flags = {word[2:].partition("=")[0].removeprefix("no-") for word in BOXES[name][4] if word.startswith("--")}
        moved = {"gdn-prefill-backend": "additional-config.gdn_prefill_backend"}
        for flag in {moved.get(flag, flag) for flag in flags}:
            assert any(key == flag or key.startswith(f"{flag}.") for key in keys), flag


def test_without_a_page_the_recipe_is_in_the_entry(tmp_path: Path) -> None:
    flags = ["--served-model-name", "tiny", "--max-model-len", "512", "--max-num-seqs", "4", "--dtype", "float32"]
    found = one(adopted(small(tmp_path, flags, {"OMP_NUM_THREADS": "2"}), cpu_facts()))
    assert found.page is not None and found.page.text is not None and found.instance is not None
    assert found.entry == {
        "model": "tiny-model",
        "port": 8000,
        "replaces": ["vllm.service"],
        "args": {"served-model-name": "tiny", "max-model-len": 512, "max-num-seqs": 4, "dtype": "float32"},
        "env": {"OMP_NUM_THREADS": "2"},
    }
    assert found.page.model.source.path == "/srv/models/Tiny-Model"
    assert found.page.model.architecture is not None and found.page.model.architecture.family == "qwen3_5"
    assert found.instance.stack.name == "vllm-0.27.1-cpu"


def test_clients_keep_the_name_that_they_use_where_no_flag_gives_one(tmp_path: Path) -> None:
    found = one(adopted(small(tmp_path, []), cpu_facts()))
    assert found.entry is not None
    assert found.entry["args"]["served-model-name"] == "/srv/models/Tiny-Model"


def test_the_lines_for_the_inventory_are_python_that_plans_the_same(tmp_path: Path) -> None:
    for name in BOXES:
        looked = adopted(by_hand(tmp_path / name, name), facts(BOXES[name][0]), serve=["qwen3-0.6b"])
        text = "\n".join(adopting_view.for_inventory(looked.entries, looked.kept))
        serve = ast.literal_eval(f"{{{text}}}")["serve"]
        assert serve == ["qwen3-0.6b", *looked.entries]
        assert all(len(line) <= 104 for line in text.splitlines())


def test_a_box_of_four_cards_gets_one_instance_as_it_has_now(tmp_path: Path) -> None:
    found = one(adopted(by_hand(tmp_path, "C"), facts("quad-3090-two-pairs")))
    assert found.entry is not None and found.entry["instances"] == 1


def test_capture_sizes_are_streams_where_they_are_multiples(tmp_path: Path) -> None:
    box = by_hand(tmp_path, "A1")
    place = tmp_path / "proc/812/cmdline"
    place.write_text(place.read_text().replace("[4,8,12]", "[4,8]").replace('size":12', 'size":8'))
    found = one(adopted(box, facts("dual-2080ti-nv2")))
    assert found.entry is not None and found.instance is not None
    assert found.entry["streams"] == 2 and "compilation-config" not in found.entry.get("args", {})
    sizes = {"cudagraph_capture_sizes": [4, 8], "max_cudagraph_capture_size": 8}
    assert found.instance.args == {**BOX_A, "compilation-config": sizes}


def test_capture_sizes_of_ones_own_are_kept(tmp_path: Path) -> None:
    box = by_hand(tmp_path, "A1")
    place = tmp_path / "proc/812/cmdline"
    place.write_text(place.read_text().replace("[4,8,12]", "[1,2,12]"))
    found = one(adopted(box, facts("dual-2080ti-nv2")))
    assert found.entry is not None and found.instance is not None
    assert found.entry["args"] == {"compilation-config": {"cudagraph_capture_sizes": [1, 2, 12]}}
    assert found.instance.args["compilation-config"]["cudagraph_capture_sizes"] == [1, 2, 12]


def test_what_the_recipe_has_and_the_service_has_not_is_taken_away(tmp_path: Path) -> None:
    box = by_hand(tmp_path, "A1")
    place = tmp_path / "proc/812/cmdline"
    text = (
        place.read_text().replace("--enable-prefix-caching\0", "").replace(',"draft_sample_method":"probabilistic"', "")
    )
    place.write_text(text)
    found = one(adopted(box, facts("dual-2080ti-nv2")))
    assert found.entry is not None and found.instance is not None
    assert found.entry["args"] == {
        "enable-prefix-caching": None,
        "speculative-config": {"draft_sample_method": None},
    }
    removed = told(found, "removed")
    assert set(removed) == {"enable-prefix-caching", "speculative-config.draft_sample_method"}
    assert "probabilistic" in removed["speculative-config.draft_sample_method"]


def test_flags_of_older_versions_are_renamed_or_left_out_and_named(tmp_path: Path) -> None:
    flags = [
        "--disable-log-requests",
        "--guided-decoding-backend",
        "xgrammar",
        "--some-patch",
        "on",
        "--swap-space",
        "4",
    ]
    found = one(adopted(small(tmp_path, flags, version="0.9.1"), cpu_facts()))
    assert found.instance is not None
    assert found.instance.args["structured-outputs-config"] == {"backend": "xgrammar"}
    changed = told(found, "changed")
    assert "vllm #21739" in changed["disable-log-requests"]
    assert changed["guided-decoding-backend"].startswith("xgrammar structured-outputs-config.backend")
    assert "first engine" in changed["swap-space"]
    assert "does not know it" in told(found, "left")["some-patch"]
    assert changed["version"].startswith("0.9.1 0.27.1")


def test_secrets_are_named_and_not_carried(tmp_path: Path) -> None:
    env = {"HF_TOKEN": "hf_abcdefghijklmnopqrstuv", "VLLM_API_KEY": "a-very-long-secret", "MY_OWN": "thing"}
    found = one(adopted(small(tmp_path, ["--api-key", "a-very-long-secret"], env), cpu_facts()))
    left = told(found, "left")
    assert "answers them without" in left["api-key"] and "put a proxy" in left["env.VLLM_API_KEY"]
    assert "fetches nothing" in left["env.HF_TOKEN"]
    assert "not read off the box" in left["env.MY_OWN"]
    assert "very-long" not in json.dumps([found.entry, [vars(item) for item in found.items]], default=str)


@pytest.mark.parametrize(
    ("cgroup", "words"),
    [
        ("/user.slice/user-1000.slice/session-3.scope", "kill 812"),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/llm.service",
            "systemctl --user disable --now llm.service",
        ),
    ],
)
def test_what_no_unit_of_the_system_starts_is_stopped_by_its_owner(tmp_path: Path, cgroup: str, words: str) -> None:
    found = one(adopted(small(tmp_path, [], cgroup=f"/user.slice/user-1000.slice/{cgroup}"), cpu_facts()))
    assert found.entry is not None and "replaces" not in found.entry
    assert found.stop is not None and words in found.stop


@pytest.mark.parametrize("unit", ["ssh.service", "cron.service"])
def test_what_was_started_within_a_unit_that_is_there_for_more_replaces_nothing(tmp_path: Path, unit: str) -> None:
    """A login without a session of its own, a line of crontab: to stop that unit would shut the owner out."""
    found = one(adopted(small(tmp_path, [], cgroup=f"/system.slice/{unit}"), cpu_facts()))
    assert found.entry is not None and "replaces" not in found.entry
    assert found.stop is not None and f"within {unit}" in found.stop and "kill 812" in found.stop


def test_nor_does_one_in_a_unit_of_a_package() -> None:
    service = {"scope": "system", "unit": "batch.service", "pid": 7, "user": "ai", "enabled": "enabled"}
    packaged = {**service, "fragment": "/usr/lib/systemd/system/batch.service", "settings": {"MemoryMax": ["1G"]}}
    assert not adopting_unit.can_be_replaced(packaged) and "kill 7" in str(adopting_unit.by_hand(packaged))
    assert not [item for item in adopting_unit.items(packaged, "tiny") if item.key == "unit.MemoryMax"]
    own = {**service, "fragment": "/etc/systemd/system/batch.service"}
    assert adopting_unit.can_be_replaced(own) and adopting_unit.by_hand(own) is None


def test_a_unit_that_does_not_start_at_boot_is_told(tmp_path: Path) -> None:
    found = one(adopted(small(tmp_path, [], enabled="disabled"), cpu_facts()))
    assert told(found, "changed")["unit.enabled"].startswith("disabled enabled")


def test_limits_of_a_unit_are_named(tmp_path: Path) -> None:
    found = one(adopted(small(tmp_path, [], more="MemoryMax=32G\nCPUAffinity=0-7"), cpu_facts()))
    assert {"unit.MemoryMax", "unit.CPUAffinity"} <= set(told(found, "left"))


@pytest.mark.parametrize(
    ("words", "cgroup", "why"),
    [
        (["/usr/local/bin/ollama", "serve"], "/system.slice/ollama.service", "none of the engines here"),
        (["/opt/llama/llama-server", "-m", "x.gguf"], SYSTEM, "none of the engines here"),
        ([*SERVE, "owner/model"], "/system.slice/docker-0123456789abcdef.scope", "container (0123456789ab)"),
        ([*SERVE, "owner/model"], SYSTEM, "no folder of the box"),
        ([*SERVE], SYSTEM, "names no model"),
    ],
)
def test_what_is_not_adopted_is_named_with_the_reason(tmp_path: Path, words: list[str], cgroup: str, why: str) -> None:
    box = HandMade(tmp_path)
    box.process(812, words, SYSTEMD, cgroup, [8000])
    looked = adopted(box, cpu_facts())
    (found,) = looked.services
    assert found.entry is None and why in str(found.why_not) and looked.planned is None
    assert any(why in line for line in adopting_view.lines(found))


def test_an_entry_of_the_inventory_that_replaces_the_unit_is_enough(tmp_path: Path) -> None:
    entry = {"model": "qwen3-0.6b", "replaces": ["vllm.service"]}
    (found,) = adopted(small(tmp_path, []), cpu_facts(), serve=[entry]).services
    assert "the inventory has it" in str(found.why_not)


def test_an_entry_for_the_same_model_or_port_gives_way(tmp_path: Path) -> None:
    looked = adopted(small(tmp_path, []), cpu_facts(), serve=[{"model": "qwen3-0.6b", "port": 8000}, "qwen3.8-27b-awq"])
    assert looked.kept == [{"model": "qwen3.8-27b-awq"}]


def test_a_damaged_model_is_told_and_is_a_problem(tmp_path: Path) -> None:
    box = small(tmp_path, [])
    shard = next((tmp_path / "srv/models/Tiny-Model").glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-1])
    found = one(adopted(box, cpu_facts()))
    assert found.page is not None
    assert any("truncated" in line for line in found.page.problems)


def test_a_model_where_services_do_not_see_it_is_a_problem(tmp_path: Path) -> None:
    box = HandMade(tmp_path)
    box.process(812, [*SERVE, "/var/tmp/Tiny"], SYSTEMD, SYSTEM, [8000])
    tiny_checkpoint.checkpoint(tmp_path / "var/tmp/Tiny")
    found = one(adopted(box, cpu_facts()))
    assert found.page is not None and "Move the model" in found.page.problems[0]


def test_lmdeploy_is_adopted_by_its_own_flags(tmp_path: Path) -> None:
    box = HandMade(tmp_path)
    words = ["/opt/l/bin/python", "/opt/l/bin/lmdeploy", "serve", "api_server", "/srv/models/Q", "--tp", "2"]
    words += ["--session-len", "32768", "--quant-policy", "8", "--server-port", "23333", "--model-name", "medium"]
    box.unit("lm.service", UNIT.format(command="lmdeploy", more=""))
    box.process(812, words, SYSTEMD, "/system.slice/lm.service", [23333])
    box.runtime("/opt/l", lmdeploy="0.18.0")
    box.checkpoint("/srv/models/Q", *qwen_awq())
    found = one(adopted(box, facts("dual-2080ti-nv2")))
    assert found.entry is not None and found.instance is not None
    assert found.entry["stack"] == found.instance.stack.name == "lmdeploy-0.18.0"
    assert found.entry["replaces"] == ["lm.service"] and found.instance.port == 23333
    told_ = {flag: found.instance.args[flag] for flag in ("tp", "session-len", "quant-policy", "model-name")}
    assert told_ == {"tp": 2, "session-len": 32768, "quant-policy": 8, "model-name": "medium"}


def test_a_page_that_names_the_folder_is_used_as_it_is(tmp_path: Path) -> None:
    box = by_hand(tmp_path, "A1")
    (tmp_path / "srv/models").mkdir(parents=True)
    (tmp_path / "home/ai/models/Qwen3.8-27B-AWQ").rename(tmp_path / "srv/models/Qwen3.8-27B-AWQ")
    place = tmp_path / "proc/812/cmdline"
    place.write_text(place.read_text().replace("/home/ai/models", "/srv/models"))
    found = one(adopted(box, facts("dual-2080ti-nv2")))
    assert found.page is not None and found.page.text is None and found.page.model.name == "qwen3.8-27b-awq"


def test_a_page_that_other_boxes_go_by_stays_theirs(tmp_path: Path) -> None:
    box = by_hand(tmp_path, "A1")
    whole = fleet(tmp_path, "box")
    other = fleet(tmp_path, "other", serve=["qwen3.8-27b-awq"])
    whole.boxes["other"] = other.boxes["other"]
    services = box.look()["services"]
    found = one(adopting_box.adopt_all(whole, "box", facts("dual-2080ti-nv2"), services, text_of))
    assert found.page is not None and found.page.model.name == "qwen3.8-27b-awq-box"
    assert found.instance is not None and found.instance.args == BOX_A


def test_a_page_of_a_folder_that_is_stronger_is_not_shadowed(tmp_path: Path) -> None:
    box, whole = by_hand(tmp_path, "A1"), fleet(tmp_path, "box")
    own = whole.models["qwen3.8-27b-awq"]
    copy = tmp_path / "more" / own.path.name
    copy.parent.mkdir()
    copy.write_text(text_of(own))
    whole.models[own.name] = own.model_copy(update={"path": copy})
    found = one(adopting_box.adopt_all(whole, "box", facts("dual-2080ti-nv2"), box.look()["services"], text_of))
    assert found.page is not None and found.page.model.name == "qwen3.8-27b-awq-box"


def test_two_services_of_one_box_are_two_entries(tmp_path: Path) -> None:
    box = small(tmp_path, ["--served-model-name", "a", "--port", "8000"])
    box.unit("second.service", UNIT.format(command="/opt/vllm/bin/vllm serve", more=""))
    words = [*SERVE, "/srv/models/Tiny-Model", "--served-model-name", "b", "--port", "8001"]
    box.process(950, words, SYSTEMD, "/system.slice/second.service", [8001])
    looked = adopted(box, cpu_facts())
    assert [entry["port"] for entry in looked.entries] == [8000, 8001]
    assert [entry.get("name") for entry in looked.entries] == [None, "tiny-model-8001"]
    assert [entry["replaces"] for entry in looked.entries] == [["vllm.service"], ["second.service"]]
    assert looked.planned is not None and len(looked.planned.plan.instances) == 2


def test_a_unit_that_starts_two_servers_is_told(tmp_path: Path) -> None:
    box = small(tmp_path, ["--served-model-name", "a", "--port", "8000"])
    words = [*SERVE, "/srv/models/Tiny-Model", "--served-model-name", "b", "--port", "8001"]
    box.process(950, words, SYSTEMD, SYSTEM, [8001])
    looked = adopted(box, cpu_facts())
    assert ["950" in told(found, "left").get("unit", "") for found in looked.services] == [True, False]
    assert "812" in told(looked.services[1], "left")["unit"]


def test_other_cards_than_now_are_told(tmp_path: Path) -> None:
    known = facts("quad-3090-two-pairs")
    for gpu in known["gpus"]:
        gpu["processes"] = [{"pid": 900, "memory_mib": 21000}] if gpu["index"] in (1, 3) else []
    found = one(adopted(by_hand(tmp_path, "C"), known))
    assert told(found, "changed")["gpus"].startswith("[1, 3] [0, 2]")
    assert "GPU 1, 3" in adopting_view.headline(found.service)


def test_a_file_in_a_home_that_a_flag_names_is_told(tmp_path: Path) -> None:
    found = one(adopted(small(tmp_path, ["--chat-template", "/home/ai/chat.jinja"]), cpu_facts()))
    assert "sees nothing of home" in told(found, "left")["chat-template"]


def test_the_plan_with_the_entry_is_what_a_deploy_would_make(tmp_path: Path) -> None:
    looked = adopted(by_hand(tmp_path, "B"), facts("dual-2080ti-nv2"))
    found = one(looked)
    assert looked.planned is not None and found.instance is not None and found.page is not None
    (instance,) = looked.planned.plan.instances
    assert instance.args == found.instance.args and instance.env == found.instance.env
    whole = fleet(tmp_path, "box")
    whole.models[found.page.model.name] = found.page.model
    box = fleet(tmp_path, "box", serve=[found.entry]).boxes["box"]
    again = plan_box(box, facts("dual-2080ti-nv2"), {}, whole.stacks, whole.models)
    assert again.instances[0].args == instance.args


def test_the_document_has_no_secret_and_all_of_it(tmp_path: Path) -> None:
    box = small(tmp_path, ["--api-key", "a-very-long-secret"])
    looked = adopted(box, cpu_facts())
    document = json.loads(json.dumps(adopting_view.document("box", looked, [])))
    (service,) = document["services"]
    assert service["adopted"] and service["entry"]["model"] == "tiny-model" and service["model"]["page"]
    assert {"key", "kind", "old", "new", "why"} == set(service["items"][0])
    assert "a-very-long-secret" not in json.dumps(document)
