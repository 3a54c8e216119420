"""Rules about `host.models`, and what a deploy makes of it: the link, the room, the unit."""

from __future__ import annotations

from typing import Any

import pytest

from gpufleet import room
from gpufleet.changes import changes
from gpufleet.layers import checked
from gpufleet.plan import BoxPlan
from gpufleet.render import release
from gpufleet.schema import ConfigError
from tests.unit.findings import Case, assert_fires, identify, said
from tests.unit.fleets import cpu_facts, plan, stack

PATH = "/mnt/big/models"
GOOD = {"exists": True, "real": PATH, "unmounted": None, "closed": None, "foreign": None}
BARE = {"link": None, "empty": True, "ours": False}
ROOT_DISK = {"free_mib": 5000, "total_mib": 9000, "filesystem": "ext4", "mount": "/"}
BIG_DISK = {"free_mib": 900_000, "total_mib": 999_000, "filesystem": "ext4", "mount": "/mnt/big", "coming_mib": 0}


def box(
    place: dict[str, Any] | None = None,
    home: dict[str, Any] | None = None,
    path: str = PATH,
    disk: dict[str, Any] | None = None,
    models_disk: dict[str, Any] | None = None,
    **more: Any,
) -> BoxPlan:
    facts = cpu_facts(
        places={path: {**GOOD, "real": path, **(place or {})}},
        models_home={**BARE, **(home or {})},
        disks={
            "/opt/gpufleet": ROOT_DISK,
            "/opt/gpufleet/models": {**ROOT_DISK, **(models_disk or {})},
            path: {**BIG_DISK, **(disk or {})},
        },
    )
    return plan(facts, {"host": {"models": path}}, **more)


CASES = [
    Case("GF620", "error", "/home/me/models cannot hold models", box(path="/home/me/models")),
    Case("GF620", "error", "/tmp cannot hold models", box(path="/tmp")),
    Case("GF620", "error", "leads to /root/models, and cannot", box({"real": "/root/models"})),
    Case("GF620", "error", "such as /srv/models", box(path="/opt/gpufleet/models")),
    Case("GF621", "error", "mkdir -p /mnt/big/models", box({"exists": False})),
    Case("GF621", "error", "mount /mnt/big", box({"unmounted": "/mnt/big"})),
    Case("GF622", "error", "/opt/gpufleet/models holds models", box(home={"empty": False})),
    Case(
        "GF622", "error",
        "cp -a /opt/gpufleet/models/. /mnt/big/models/ && mv /opt/gpufleet/models /opt/gpufleet/models.old && "
        "ln -sfn /mnt/big/models /opt/gpufleet/models, then deploy again",
        box(home={"empty": False}),
    ),
    Case("GF622", "error", "is a link to /mnt/old", box(home={"link": "/mnt/old", "empty": False})),
    Case("GF622", "error", "leave host.models out", box(models_disk={"mount": "/opt/gpufleet/models"})),
    Case("GF622", "error", "such as /mnt/big/models/gpufleet", box({"foreign": "photos"})),
    Case("GF623", "error", "is on exfat", box(disk={"filesystem": "exfat"})),
    Case("GF623", "error", "chmod o+x /mnt/big", box({"closed": "/mnt/big"})),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=identify)
def test_it_is_found(case: Case) -> None:
    assert_fires(case)


@pytest.mark.parametrize("rule", ["GF620", "GF621", "GF622", "GF623"])
@pytest.mark.parametrize(
    "found",
    [
        box(),
        box(path="/homes/models"),
        box({"foreign": "tiny"}, {"link": PATH, "empty": False}),
        plan(cpu_facts(), {"host": {"models": PATH}}),
        plan(cpu_facts()),
    ],
    ids=["all in order", "a name that begins alike", "linked already", "not looked at yet", "not wanted"],
)
def test_what_is_in_order_is_not(rule: str, found: BoxPlan) -> None:
    assert said(found, rule) == []


# What becomes of it


@pytest.mark.parametrize(
    ("home", "to_do"),
    [
        ({}, PATH),
        ({"link": PATH, "empty": False}, PATH),
        ({"link": PATH, "empty": False, "ours": True}, ""),
        ({"link": "/mnt/old", "ours": True}, PATH),
    ],
    ids=["bare", "linked by hand: taken over", "done", "another one, and empty"],
)
def test_the_link_is_made_or_taken_over_once(home: dict[str, Any], to_do: str) -> None:
    found = changes(box(home=home))
    assert found.models_home == to_do and bool(found)
    line = f"keep models in {PATH}: /opt/gpufleet/models links to it"
    assert (line in found.lines()) == bool(to_do)


def test_nothing_is_done_where_the_look_did_not_tell_or_nothing_is_wanted() -> None:
    assert changes(plan(cpu_facts(), {"host": {"models": PATH}})).models_home == ""
    assert changes(plan(cpu_facts(models_home=BARE))).models_home == ""


def test_the_link_alone_is_a_change() -> None:
    idle = plan(cpu_facts(models_home=BARE), {"serve": [], "host": {"models": PATH}})
    assert changes(idle).models_home == PATH and changes(idle)


def test_the_room_for_models_is_looked_for_on_their_disk() -> None:
    large = stack(disk_mib=3000)
    assert room.needs(box(stacks=[large])) == {"/opt/gpufleet": 3000, PATH: 5}
    assert room.needs(box(stacks=[large], disk={"mount": "/"})) == {"/opt/gpufleet": 3005, PATH: 0}
    assert room.needs(box(stacks=[large], disk={"coming_mib": 5})) == {"/opt/gpufleet": 3000, PATH: 0}
    unknown = plan(cpu_facts(disks={"/opt/gpufleet": ROOT_DISK}), {"host": {"models": PATH}}, stacks=[large])
    assert room.needs(unknown) == {"/opt/gpufleet": 3005, "/opt/gpufleet/models": 0}
    assert said(box(stacks=[large], disk={"free_mib": 1000}), "GF603")[0].message.startswith(f"{PATH} has 1000 MiB")


def test_a_service_waits_for_the_disk_which_systemd_would_not_find_through_the_link() -> None:
    (instance,) = box().instances
    unit = next(text for name, text in release(instance).files.items() if name.endswith(".service"))
    assert f'RequiresMountsFor=/opt/gpufleet "/opt/gpufleet/models/tiny/r1" "{PATH}"\n' in unit
    (without,) = plan(cpu_facts()).instances
    unit = next(text for name, text in release(without).files.items() if name.endswith(".service"))
    assert 'RequiresMountsFor=/opt/gpufleet "/opt/gpufleet/models/tiny/r1"\n' in unit


@pytest.mark.parametrize("wrong", ["models", "/mnt/../etc", "/mnt/a b", "~/models", ""])
def test_a_path_that_is_none_is_refused_before_any_connection(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"host\.models"):
        checked({"host": {"models": wrong}}, "--data")


def test_a_path_is_taken_as_the_box_would_write_it() -> None:
    assert checked({"host": {"models": "//mnt//big/models/"}}, "--data") == {"host": {"models": PATH}}
