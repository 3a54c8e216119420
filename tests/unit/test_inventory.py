"""The inventory: checked before any connection, its errors one line each, its groups by trait."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpufleet.errors import ConfigError
from gpufleet.fleet import Fleet
from gpufleet.inventory import load
from tests.unit.fleets import cpu_facts, gpu_facts, owner

GOOD = ("turing-1", {"ssh_hostname": "192.0.2.1", "serve": ["qwen3-0.6b"], "stack": "vllm-0.27.1-cpu"})


def fleet(root: Path, *boxes: object, text: str = "boxes = []\n", **pages: str) -> Fleet:
    owner(root, inventory__home=text, **pages)
    return load(boxes, root / "inventory" / "home.py")


def test_a_good_inventory_has_its_boxes_and_settings(tmp_path: Path) -> None:
    found = fleet(tmp_path, GOOD)
    assert found.boxes["turing-1"].data == {"serve": ["qwen3-0.6b"], "stack": "vllm-0.27.1-cpu"}
    name, data = found.groups()["fleet"][0]
    assert (name, data["ssh_hostname"]) == ("turing-1", "192.0.2.1")
    assert data["ssh_strict_host_key_checking"] == "yes"


@pytest.mark.parametrize(
    ("box", "says"),
    [
        (("a", {"ssh_hostnam": "192.0.2.1"}), ["box a", "'ssh_hostnam'", "did you mean 'ssh_hostname'?"]),
        (("a", {"ssh_hostname": "192.0.2.1", "serv": []}), ["box a", "'serv'", "did you mean 'serve'?"]),
        (("no.such.box.invalid", {}), ["no.such.box.invalid", "has no address", "ssh_hostname"]),
        (("a", {"ssh_hostname": "192.0.2.1", "serve": ["qwen3-0.6"]}), ["box a", "did you mean 'qwen3-0.6b'?"]),
        (("a", {"ssh_hostname": "192.0.2.1", "stack": "vllm-0.27-cpu"}), ["did you mean 'vllm-0.27.1-cpu'?"]),
        (("a", {"ssh_hostname": "192.0.2.1", "serve": [{"modle": "x"}]}), ["'serve.0.modle'", "did you mean 'model'?"]),
        (("a; rm -rf /", {"ssh_hostname": "192.0.2.1"}), ["a name is letters"]),
        (17, ["17 is no box"]),
        *(
            (("a", {"ssh_hostname": "192.0.2.1", "ssh_port": port}), ["box a", f"ssh_port is {port}", "1 to 65535"])
            for port in (0, -1, 65536, 99999, True)
        ),
        *(
            (("a", {"ssh_hostname": "192.0.2.1", "ssh_user": user}), ["box a", f"ssh_user is {user!r}"])
            for user in ("", "a b", "a:b", "-oProxyCommand=x")
        ),
        *(
            ((name, {"ssh_hostname": "192.0.2.1"}), [f"box {name}: give it another name", "a group made by gpufleet"])
            for name in ("fleet", "all", "home", "sm75", "cpu", "nvlink", "gpus2")
        ),
    ],
)
def test_a_wrong_box_is_named_with_file_key_and_nearest_name(tmp_path: Path, box: object, says: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        fleet(tmp_path, box)
    assert str(caught.value).startswith("inventory/home.py")
    for word in says:
        assert word in str(caught.value)


CONFIG = """
Host *
  User ops
Host alias "quoted one"
Host lab-?? !lab-13
  HostName 192.0.2.%h   # a comment
Host *.jump.invalid
  ProxyJump gate
Include parts/*.conf
"""


@pytest.mark.parametrize("of_its_own", [False, True])
@pytest.mark.parametrize(
    ("name", "known"),
    [("alias", True), ("lab-12", True), ("lab-13", False), ("lab-123", False), ("a.jump.invalid", True)]
    + [("included", True), ("other.invalid", False)],
)
def test_a_box_may_have_its_address_in_an_ssh_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, known: bool, of_its_own: bool
) -> None:
    home = tmp_path / "home"
    config = home / ("of-its-own" if of_its_own else ".ssh/config")
    (config.parent / "parts").mkdir(parents=True)
    config.write_text(CONFIG)
    # which includes the first again
    (config.parent / "parts" / "more.conf").write_text(f"Include {config}\nHost included\n  HostName 192.0.2.9\n")
    monkeypatch.setenv("HOME", str(home))
    data = {"ssh_config_file": str(config)} if of_its_own else {}
    if known:
        assert list(fleet(tmp_path / "fleet", (name, data)).boxes) == [name]
    else:
        with pytest.raises(ConfigError, match=f"{name} has no address"):
            fleet(tmp_path / "fleet", (name, data))


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        fleet(tmp_path, GOOD, GOOD, ("b", {"x": 1}), group_data__nothing="stack = 'x'")
    assert len(caught.value.problems) == 3


def test_a_folder_of_models_that_is_not_there_is_named(tmp_path: Path) -> None:
    owner(tmp_path, inventory__home="boxes = []\n")
    with pytest.raises(ConfigError, match=r"names .*/modles, and there is no such folder; correct it"):
        load([GOOD], tmp_path / "inventory" / "home.py", [tmp_path / "modles"])
    (tmp_path / "modles").mkdir()
    load([GOOD], tmp_path / "inventory" / "home.py", [tmp_path / "modles"])


def test_an_empty_inventory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no box"):
        fleet(tmp_path)


def test_unknown_stack_in_group_data_names_its_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"group_data/all.py: unknown stack 'vlm'"):
        fleet(tmp_path, GOOD, group_data__all="stack = 'vlm'")


def test_the_owners_groups_are_read_from_the_file(tmp_path: Path) -> None:
    found = fleet(tmp_path, GOOD, text='kitchen = ["turing-1"]\n', group_data__kitchen="silence = ['disk-space']")
    assert found.boxes["turing-1"].groups == ("fleet", "kitchen", "home")


TWO = [("attic", {"ssh_hostname": "192.0.2.1"}), ("cellar", {"ssh_hostname": "192.0.2.2"})]


def named(root: Path, boxes: list[Any], /, **names: Any) -> Fleet:
    """The fleet of an inventory that had assigned these names when it called `by_traits(boxes)`."""
    owner(root, inventory__home="")
    return load(boxes, root / "inventory" / "home.py", (), names)


def test_a_computed_group_counts_like_a_written_one_and_the_list_of_boxes_does_not(tmp_path: Path) -> None:
    found = named(tmp_path, TWO, boxes=TWO, upstairs=[name for name, _ in TWO[:1]], _models=["qwen3-0.6b"], ports=[80])
    assert [box.groups for box in found.boxes.values()] == [("fleet", "upstairs", "home"), ("fleet", "home")]
    with pytest.raises(ConfigError, match=r"names no box and no group; known: attic, cellar, fleet, home, upstairs$"):
        found.select(["boxes"], [])
    owner(tmp_path, group_data__boxes="stack = 'vllm-0.27.1-cpu'")
    with pytest.raises(ConfigError, match=r"group_data/boxes.py: 'boxes' is neither a trait nor a group"):
        named(tmp_path, TWO, boxes=TWO)


def test_lists_of_boxes_that_are_put_together_are_groups(tmp_path: Path) -> None:
    found = named(tmp_path, [*TWO], up=TWO[:1], down=TWO[1:])
    assert found.select(["down"], []) == ["cellar"]


def test_what_is_written_above_the_call_counts_as_it_was_at_the_call(tmp_path: Path) -> None:
    text = 'up = ["gone"]\ndel up\n\ndown = ["cellar"]\nports = [80]\n'
    owner(tmp_path, inventory__home=text)
    found = load(TWO, tmp_path / "inventory" / "home.py", (), {}, 3)
    assert found.boxes["cellar"].groups == ("fleet", "down", "home")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("upstairs", ["atic"], "group 'upstairs': 'atic' is no box; did you mean 'attic'?"),
        ("models", ["qwen3-0.6b"], "'qwen3-0.6b' is no box; known: attic, cellar (a list of anything else: call it _"),
        ("sm75", ["attic"], "give it another name: sm75 is a group made by gpufleet, of the boxes with that trait"),
        ("nvlink", TWO, "give it another name: nvlink is a group made by gpufleet"),
        ("fleet", ["attic"], "give it another name: fleet is a group made by gpufleet, of all boxes"),
        ("all", ["attic"], "give it another name: all is a group made by gpufleet, of all boxes"),
        ("home", ["attic"], "give it another name: home is a group made by gpufleet, of all boxes"),
        ("cellar", ["attic"], "give it another name: cellar is a box"),
        ("up", ("attic", "cellar"), "up is a tuple, which pyinfra takes for a group: call it _up"),
    ],
)
def test_a_group_that_is_none_is_refused(tmp_path: Path, name: str, value: Any, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        named(tmp_path, TWO, **{name: value})
    assert len(caught.value.problems) == 1 and caught.value.problems[0].startswith("inventory/home.py: ")
    assert says in caught.value.problems[0]


@pytest.mark.parametrize("name", ["fleet", "all", "home", "machines"])
def test_the_list_of_all_boxes_may_have_the_name_of_a_group_of_all_boxes(tmp_path: Path, name: str) -> None:
    assert list(named(tmp_path, TWO, **{name: TWO}).by_hand()) == ["fleet", "home"]


def test_groups_by_trait_come_from_cached_facts(tmp_path: Path) -> None:
    folder = tmp_path / "inventory" / "facts" / "home"
    folder.mkdir(parents=True)
    (folder / "turing-1.json").write_text(json.dumps(gpu_facts()))
    groups = fleet(tmp_path, GOOD).groups()
    assert {name for name, members in groups.items() if members == ["turing-1"]} == {
        "sm75", "nvlink", "sm75_nvlink", "nv2", "gpus2",
    }  # fmt: skip


def test_damaged_facts_count_as_none(tmp_path: Path) -> None:
    folder = tmp_path / "inventory" / "facts" / "home"
    folder.mkdir(parents=True)
    (folder / "turing-1.json").write_text('{"schema": 1, "gp')
    assert list(fleet(tmp_path, GOOD).groups()) == ["fleet"]


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (("b", {"ssh_hostname": "192.0.2.1"}), "have the same address 192.0.2.1"),
        (("b", {"ssh_hostname": "192.0.2.2", "ssh_port": "22x"}), "ssh_port is '22x'; it must be a number"),
        (("b\n", {"ssh_hostname": "192.0.2.2"}), "a name is letters"),
        (("b", {"ssh_hostname": "192.0.2.2", "mirrors": {"pypi": "https://me:secret@x/"}}), "mirrors.pypi"),
        (("b", {"ssh_hostname": "192.0.2.2", "serve_env": {"A": "x\udcff"}}), "UTF-8"),
    ],
)
def test_what_would_make_boxes_fight_or_leak_is_refused(tmp_path: Path, second: object, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        fleet(tmp_path, GOOD, second)
    assert says in str(caught.value)


def test_what_editors_leave_beside_pages_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "files" / "models").mkdir(parents=True)
    (tmp_path / "files" / "models" / ".#x.yaml").symlink_to("nowhere")
    (tmp_path / "group_data").mkdir()
    (tmp_path / "group_data" / ".#all.py").symlink_to("nowhere")
    assert fleet(tmp_path, GOOD).boxes


def test_a_group_data_file_that_exits_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"group_data/all.py: SystemExit"):
        fleet(tmp_path, GOOD, group_data__all="import sys\nsys.exit(0)\n")


def test_a_stack_without_its_lock_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "files" / "stacks"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(
        "{schema: 1, name: mine, title: x, engine: vllm, python: ['3.11'], arch: [cpu], lock: gone.txt, "
        f"uv: {{version: '1', sha256: '{'0' * 64}'}}}}"
    )
    with pytest.raises(ConfigError, match=r"stacks/mine.yaml: .*gone.txt"):
        fleet(tmp_path, GOOD)


def known_fleet(tmp_path: Path) -> Fleet:
    """turing-1 and plain-1 were looked at, new-1 was not; `kitchen` is the owner's own."""
    boxes = [
        (name, {"ssh_hostname": f"192.0.2.{number}"}) for number, name in enumerate(("turing-1", "plain-1", "new-1"), 1)
    ]
    found = fleet(tmp_path, *boxes, text='kitchen = ["new-1", "plain-1"]\n')
    found.facts = {"turing-1": gpu_facts(), "plain-1": cpu_facts()}
    return found


@pytest.mark.parametrize(
    ("limit", "exclude", "meant", "to_look_at"),
    [
        ([], [], ["turing-1", "plain-1", "new-1"], ["new-1"]),
        (["turing-1"], [], ["turing-1"], []),
        (["sm75"], [], ["turing-1"], ["new-1"]),
        (["kitchen"], [], ["plain-1", "new-1"], ["new-1"]),
        (["kitchen"], ["cpu"], ["new-1"], ["new-1"]),
        (["*-1"], ["new-1"], ["turing-1", "plain-1"], []),
        (["home", "fleet"], ["turing-*"], ["plain-1", "new-1"], ["new-1"]),
    ],
)
def test_whom_a_run_is_for_and_whom_it_has_to_look_at(
    tmp_path: Path, limit: list[str], exclude: list[str], meant: list[str], to_look_at: list[str]
) -> None:
    found = known_fleet(tmp_path)
    assert found.select(limit, exclude) == meant
    assert found.to_look_at(limit, exclude) == to_look_at
    assert set(found.concerned(limit, exclude)) == {*meant, *to_look_at}


def test_a_trait_nobody_is_known_to_have(tmp_path: Path) -> None:
    found = known_fleet(tmp_path)
    assert found.concerned(["sm70"], []) == ["new-1"]
    with pytest.raises(ConfigError, match="--limit 'sm70' names no box and no group"):
        found.select(["sm70"], [])


@pytest.mark.parametrize(
    ("limit", "exclude", "says"),
    [
        (["turing-l"], [], "--limit 'turing-l' names no box .*did you mean 'turing-1'"),
        (["sm75", "kichen"], [], "--limit 'kichen' names no box .*did you mean 'kitchen'"),
        (["sm75"], ["nowhere"], "--exclude 'nowhere' names no box"),
        (["plain-1"], ["kitchen"], "leave no box"),
    ],
)
def test_wrong_words_are_said_before_any_look(tmp_path: Path, limit: list[str], exclude: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        known_fleet(tmp_path).to_look_at(limit, exclude)
