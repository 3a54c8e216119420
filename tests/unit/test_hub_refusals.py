"""What the hub, a mirror, the client or the disk refuse is said with file, cause and remedy; tokens go nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpufleet import model_files
from gpufleet.hub_child import clean
from gpufleet.settings import Mirrors
from gpufleet.wheelhouse import child, hub, large
from gpufleet.wheelhouse.items import FetchError, FromHub, Item
from gpufleet.wheelhouse.store import Store
from hostkit import fetch
from lab.hub import Mood
from tests.unit.hubs import COMMIT, LARGE, PIECE, REPO, TOKEN, Bench, bench, page
from tests.unit.servers import Server

__all__ = ["bench"]


def test_a_client_that_is_set_offline_is_said(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    bench.only("config.json")
    with pytest.raises(FetchError, match=r"config\.json: HF_HUB_OFFLINE is set\. Unset HF_HUB_OFFLINE on this"):
        bench.ready()


def test_a_client_that_is_not_there_is_said(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    (bench.root / "huggingface_hub").mkdir()
    (bench.root / "huggingface_hub" / "__init__.py").write_text("raise ImportError('broken')")
    monkeypatch.setattr(child, "_path", lambda: f"{bench.root}:{child.FOLDER}")
    bench.only("config.json")
    with pytest.raises(FetchError, match=r"config\.json: the hub's client is not installed: broken\. Install"):
        bench.ready()


def test_what_is_said_has_neither_token_nor_login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "odd one")
    said = "Bearer odd one hf_0123456789 https://me:pass@m.example/x?Signature=abc\n end"
    assert clean(said) == "Bearer *** *** https://m.example/x end"


def test_wrong_bytes_twice_are_an_error_and_nothing_of_them_stays(bench: Bench) -> None:
    bench.only()
    bench.hub.moods = [Mood("flip", LARGE, at=100, times=2)]
    with pytest.raises(FetchError, match=rf"^{LARGE}: {bench.hub.url}/.* gave sha256 \w+ twice, not .*another mirror"):
        bench.ready()
    assert not bench.store.has(bench.item()) and bench.store.part(bench.item()) == 0
    bench.ready()
    assert bench.whole()


def test_a_hub_that_is_busy_is_asked_again_when_it_says(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    bench.only()
    monkeypatch.setattr(large.time, "sleep", waited.append)
    bench.hub.moods = [
        Mood("status", f"resolve/{COMMIT}/{LARGE}", status=429, retry_after=7, large_only=False),
        Mood("status", LARGE, status=503),
    ]
    bench.ready()
    assert bench.whole() and sum(waited) == 7 + 2
    assert any(line.endswith("it answers 429; again in 7 s") for line in bench.said)


def test_a_mirror_that_stays_broken_is_named(bench: Bench) -> None:
    bench.only()
    bench.hub.moods = [Mood("status", LARGE, status=502, times=1000)]
    said = rf"^{LARGE} of {REPO} at 0123456789ab from {bench.hub.url}: it answers 502\. "
    with pytest.raises(FetchError, match=said + r".*mirrors\.hub to another.*kept"):
        bench.ready()
    bench.hub.moods = []
    bench.ready()
    assert bench.whole()


def test_a_mirror_that_is_not_there(bench: Bench) -> None:
    bench.only("config.json")
    with pytest.raises(FetchError, match=r"from http://127\.0\.0\.1:1: ConnectError: .*Check the network; if it stays"):
        bench.ready(mirrors={"hub": "http://127.0.0.1:1"})


def test_the_endpoint_is_the_setting_then_the_variable_then_the_hub() -> None:
    assert hub.endpoint(Mirrors(hub="http://m/"), {"HF_ENDPOINT": "http://e"}) == "http://m"
    assert hub.endpoint(Mirrors(), {"HF_ENDPOINT": "http://e/"}) == "http://e"
    assert hub.endpoint(Mirrors(), {}) == hub.HUB


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"hub": "org/other"}, r"it answers 401: .*private, gated, or not there\. .*source\.hub.*HF_TOKEN"),
        ({"commit": "f" * 40}, r"the repository has no such commit\. Correct source .*`gpufleet models add`"),
        ({"files": {"gone.json": {"size": 3, "sha256": "0" * 64}}}, r"gone\.json .*the commit has no such file\."),
        (
            {"files": {LARGE: {"size": 2 * PIECE + 12345, "sha256": "0" * 64}}},
            r"says its sha256 is .*, the model's page 0+",
        ),
        ({"files": {"config.json": {"size": 3, "sha256": "0" * 64}}}, r"says it has 23 bytes, the model's page 3\."),
    ],
)
def test_what_the_hub_does_not_have_is_said_at_once(bench: Bench, source: dict[str, object], said: str) -> None:
    bench.model = page(bench.files, source=bench.model.source.model_dump(mode="json", exclude_none=True) | source)
    with pytest.raises(FetchError, match=said):
        bench.ready()
    assert max(bench.hub.requests.values()) == 1


def test_what_is_no_hub_is_said(bench: Bench) -> None:
    with Server() as server:
        bench.model = page({"config.json": b"{}"})
        server.add(f"/{REPO}/resolve/{COMMIT}/config.json", b"{}")
        with pytest.raises(FetchError, match=r"config\.json .*(501|no hub).*mirrors\.hub"):
            bench.ready(mirrors={"hub": server.url})


def test_offline_names_what_lacks_and_what_gets_it(bench: Bench) -> None:
    with pytest.raises(FetchError, match=r"lacks 3 files of the model .*: config\.json, .*--model \S+ --archive store"):
        bench.ready(fetch={"offline": True})
    assert bench.hub.requests.total() == 0
    bench.ready()
    bench.hub.requests.clear()
    bench.ready(fetch={"offline": True})
    assert bench.hub.requests.total() == 0


def test_boxes_that_fetch_themselves_get_addresses_and_the_controller_nothing(bench: Bench) -> None:
    items = bench.ready(fetch={"by": "boxes"})
    assert bench.hub.requests.total() == 0 and not any(bench.store.has(item) for item in items)
    found = model_files.addresses(bench.model, bench.settings().mirrors)
    assert found[bench.item("sub/notes.txt").sha256] == f"{bench.hub.url}/{REPO}/resolve/{COMMIT}/sub/notes.txt"
    target = bench.root / "box" / LARGE
    fetch.fetch_file(found[bench.item().sha256], str(target), bench.item().sha256)
    assert target.read_bytes() == bench.files[LARGE]
    assert "fetch.by to 'controller'" in model_files.no_token(bench.model)


def test_no_room_is_said_before_and_a_disk_that_fills_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 1000

    with monkeypatch.context() as patch:
        patch.setattr("gpufleet.wheelhouse.store.shutil.disk_usage", lambda path: Usage)
        with pytest.raises(FetchError, match=r"are to be written, 1 KiB are free\. Free space there"):
            bench.ready()
    assert bench.hub.requests.total() == 0
    part = bench.place().with_name(LARGE + ".part")
    part.parent.mkdir(parents=True)
    part.symlink_to("/dev/full")
    with pytest.raises(FetchError, match=rf"^{LARGE}: .*\.part: No space left on device\. Free space there"):
        bench.ready()
    part.unlink()
    bench.ready()
    assert bench.whole()


def test_a_token_is_told_to_the_hub_only_by_the_childs_environment(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.hub.repos[REPO].token = TOKEN
    with pytest.raises(FetchError, match="HF_TOKEN"):
        bench.ready()
    monkeypatch.setenv("HF_TOKEN", TOKEN[:-1])
    with pytest.raises(FetchError, match="HF_TOKEN") as wrong:
        bench.ready()
    assert TOKEN[:-1] not in str(wrong.value)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    bench.hub.moods = [Mood("cut", LARGE, at=9 << 20)]
    bench.ready()
    assert bench.whole() and not bench.hub.leaked
    assert not any(TOKEN in line for line in bench.said)
    stored = [path for path in bench.root.rglob("*") if path.is_file() and path.stat().st_size < 1 << 20]
    assert not any(TOKEN.encode() in path.read_bytes() for path in stored)


def test_the_clients_own_token_file_does(bench: Bench) -> None:
    bench.hub.repos[REPO].token = TOKEN
    bench.hub.repos[REPO].gated = True
    with pytest.raises(FetchError, match=r"it answers 403: .*accept its terms at"):
        bench.ready()
    (bench.root / "hf").mkdir(exist_ok=True)
    (bench.root / "hf" / "token").write_text(TOKEN + "\n")
    bench.ready()
    assert bench.whole() and not bench.hub.leaked


@pytest.mark.parametrize("given", ["foo", "http://h:abc", "http://["])
def test_what_is_no_address_of_a_hub_is_said_at_once(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", given)
    item = Item("config.json", "0" * 64, 4, FromHub(REPO, COMMIT, "config.json"))
    with pytest.raises(FetchError, match=r"is no http address of a hub: correct mirrors\.hub, or the variable HF_END"):
        model_files.bring([item], Store(tmp_path), Mirrors(), print)
