"""Checkpoints over HTTP and on the hub: lists, ranges, sha256, mirrors, tokens, and what fails in one line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest

from gpufleet.checkpoint import places, reading
from gpufleet.checkpoint.folder import Folder
from gpufleet.checkpoint.hub import Hub
from gpufleet.checkpoint.web import Web
from gpufleet.errors import ConfigError
from gpufleet.wheelhouse.hub import HUB
from gpufleet.wheelhouse.items import FetchError
from tests.unit.checkpoint_server import COMMIT, Site
from tests.unit.checkpoints import laid_out, write

SHARD = laid_out(iter([("model.embed_tokens.weight", "BF16", [5000, 40]), ("lm_head.weight", "BF16", [5000, 40])]))


def said(_: str) -> None:
    pass


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def content(tmp_path: Path) -> dict[str, bytes]:
    """A small checkpoint: a shard of 800 kB, and what is beside it."""
    write(tmp_path / "s.safetensors", SHARD)
    index = {"weight_map": dict.fromkeys(SHARD, "model-00001-of-00001.safetensors")}
    return {
        "config.json": b'{"model_type": "llama"}',
        "model.safetensors.index.json": json.dumps(index).encode(),
        "model-00001-of-00001.safetensors": (tmp_path / "s.safetensors").read_bytes(),
        "tokenizer.json": b"{}" * 2000,
        "README.md": b"# hello",
    }


MIRROR = "http://192.168.1.5:8080"
OWN = ("config.json", "model-00001-of-00001.safetensors", "model.safetensors.index.json", "tokenizer.json")


@pytest.fixture
def site(content: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with Site() as found:
        found.repos["org/m"] = content
        found.files |= {f"/plain/m/{name}": data for name, data in content.items()}
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        yield found


def web(site: Site, under: str = "/plain/m") -> Web:
    return Web(site.url + under + "/", wait=0.01)


def files_of(place: Any) -> dict[str, tuple[int, str]]:
    found = reading.read(place)
    assert found.headers == SHARD
    return {name: (file.size, file.sha256) for name, file in place.hashed(found.choice.files, said).items()}


def expected(content: dict[str, bytes]) -> dict[str, tuple[int, str]]:
    return {name: (len(content[name]), sha(content[name])) for name in OWN}


def test_the_hub_tells_sizes_and_sha256(site: Site, content: dict[str, bytes]) -> None:
    place = Hub("org/m", None, site.url)
    assert files_of(place) == expected(content)
    assert place.commit == COMMIT and place.revision({}) == COMMIT[:12] and place.name() == "m"
    assert site.sent < 200_000  # headers and small files, not the shard
    assert not [line for line in site.asked if "README" in line]


def test_files_come_from_the_commit_that_the_list_is_of(site: Site) -> None:
    reading.read(Hub("org/m", "main", site.url))
    assert "GET /api/models/org/m/revision/main" in site.asked
    assert all(f"/resolve/{COMMIT}/" in line for line in site.asked if "/resolve/" in line)


def test_the_token_goes_to_the_hub_and_is_nowhere_else(site: Site) -> None:
    place = Hub("org/m", None, site.url)
    found = place.source(place.hashed(reading.read(place).choice.files, said))
    assert "Bearer hf_secret" in site.logins and "hf_secret" not in found.model_dump_json()


def test_a_small_file_that_came_damaged_is_not_believed(site: Site) -> None:
    place = Hub("org/m", None, site.url)
    reading.read(place)
    site.damaged.add("config.json")
    with pytest.raises(FetchError, match=r"org/m: config\.json came damaged from http://127"):
        place.hashed(["config.json"], said)


@pytest.mark.parametrize(
    ("status", "code", "kind", "problem"),
    [
        (
            404,
            "RepoNotFound",
            ConfigError,
            "has no repository org/m, or it is private: correct the name, or give a token",
        ),
        (401, "", FetchError, "answered 401; give a token: HF_TOKEN, or hf auth login"),
        (404, "", FetchError, "answered 404; correct the name, or set mirrors.hub to where it is"),
        (404, "RevisionNotFound", ConfigError, "org/m has no revision v9"),
        (403, "GatedRepo", FetchError, "org/m@v9 is gated: accept its terms at https://huggingface.co/org/m"),
        (403, "", FetchError, "answered 403; give a token"),
        (429, "", FetchError, "answered 429; call it again later, or set mirrors.hub to a mirror"),
        (500, "", FetchError, "answered 500"),
    ],
)
def test_what_the_hub_refuses_is_one_line(
    site: Site, status: int, code: str, kind: type[Exception], problem: str
) -> None:
    path = "/api/models/org/m/revision/v9"
    site.statuses[path] = status
    if code:
        site.codes[path] = code
    with pytest.raises(kind, match=problem) as raised:
        Hub("org/m", "v9", site.url).sizes()
    assert "\n" not in str(raised.value)


def test_a_hub_that_is_not_there_is_said_without_its_login() -> None:
    at = "http://me:" + "hidden@127.0.0.1:9"
    with pytest.raises(
        FetchError, match=r"http://127\.0\.0\.1:9 cannot be reached .*set mirrors.hub to a mirror"
    ) as raised:
        Hub("org/m", None, at).sizes()
    assert "hidden" not in str(raised.value)


def test_a_client_that_is_told_to_stay_offline(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match="HF_HUB_OFFLINE is set"):
        Hub("org/m", None, site.url).sizes()


def test_a_plain_server_is_read_for_sha256(site: Site, content: dict[str, bytes]) -> None:
    place = web(site)
    assert files_of(place) == expected(content)
    assert place.name() == "m"
    assert not [line for line in site.asked if "README" in line]


def test_a_models_own_code_is_among_its_files(site: Site) -> None:
    site.files["/plain/m/config.json"] = b'{"auto_map": {"AutoConfig": "configuration_m.C", "AutoModel": "o/x--y.M"}}'
    site.files["/plain/m/configuration_m.py"] = b"class C: ..."
    assert "configuration_m.py" in reading.read(web(site)).choice.files


def test_only_headers_are_read_at_first(site: Site) -> None:
    reading.read(web(site))
    assert site.sent < 200_000


def test_a_file_of_sums_spares_the_reading(site: Site, content: dict[str, bytes]) -> None:
    sums = "".join(f"{sha(data)}  {name}\n" for name, data in content.items() if name != "tokenizer.json")
    site.files["/plain/m/SHA256SUMS"] = sums.encode()
    assert files_of(web(site)) == expected(content)
    assert site.sent < 200_000


def test_a_hub_behind_an_address_tells_sha256_where_it_redirects(site: Site, content: dict[str, bytes]) -> None:
    place = web(site, "/org/m/resolve/main")
    assert files_of(place) == expected(content) and place.name() == "m"
    assert site.sent < 200_000


def test_cut_connections_go_on_where_they_were(site: Site, content: dict[str, bytes]) -> None:
    place = web(site)
    choice = reading.read(place).choice
    site.cuts, before = 3, site.sent
    assert place.hashed(choice.files, said)["tokenizer.json"].sha256 == sha(content["tokenizer.json"])
    assert site.sent - before == sum(len(content[name]) for name in choice.files)


def test_a_busy_server_is_asked_again(site: Site, content: dict[str, bytes]) -> None:
    site.busy = 3
    assert files_of(web(site)) == expected(content)


def test_a_server_without_ranges_does_for_small_models(site: Site, content: dict[str, bytes]) -> None:
    site.ranges = False
    assert files_of(web(site)) == expected(content)


def test_an_address_without_a_model(site: Site) -> None:
    with pytest.raises(ConfigError, match=r"/nothing has no config\.json: give the folder, repository or address"):
        reading.read(web(site, "/nothing"))


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(FetchError, match="refused; correct the address, or call it again"):
        reading.read(Web("http://127.0.0.1:9/m", wait=0.01))


def test_a_server_that_refuses(site: Site) -> None:
    site.statuses["/plain/m/config.json"] = 401
    with pytest.raises(FetchError, match=r"/plain/m/config\.json: 401 Unauthorized; correct the address"):
        reading.read(web(site))


@pytest.mark.parametrize(
    ("source", "revision", "kind", "where"),
    [
        ("org/m", None, Hub, "org/m"),
        ("org/m", "v1", Hub, "org/m@v1"),
        ("org/m@v1", None, Hub, "org/m@v1"),
        ("org/m@v1", "v2", Hub, "org/m@v2"),
        ("hf:org/Some_model-1.5@refs/pr/3", None, Hub, "org/Some_model-1.5@refs/pr/3"),
        ("https://huggingface.co/org/m", None, Hub, "org/m"),
        ("https://huggingface.co/org/m/tree/main", None, Hub, "org/m@main"),
        ("https://hf-mirror.com/org/m/", None, Hub, "org/m"),
        ("https://huggingface.co/org/m/resolve/main", None, Web, "https://huggingface.co/org/m/resolve/main"),
        ("http://192.168.1.5/models/m/", None, Web, "http://192.168.1.5/models/m"),
    ],
)
def test_what_a_source_means(source: str, revision: str | None, kind: type[Any], where: str) -> None:
    found = places.place(source, HUB, revision)
    assert type(found) is kind and found.where == where


def test_with_a_mirror_its_pages_are_repositories_and_the_hubs_own_too() -> None:
    for address in ("http://192.168.1.5:8080/org/m", "https://huggingface.co/org/m"):
        found = places.place(address, MIRROR)
        assert isinstance(found, Hub) and found.endpoint == MIRROR
    assert isinstance(places.place("http://192.168.1.5/org/m", MIRROR), Web)


def test_a_folder_wins_over_a_repository_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "m").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert isinstance(places.place("org/m", HUB), Folder)
    assert isinstance(places.place("hf:org/m", HUB), Hub)
    assert places.place("./org/m", HUB).name() == "m"


@pytest.mark.parametrize(
    ("source", "revision", "problem"),
    [
        ("m", None, "m is no folder, no http address, and no repository"),
        ("hf:m", None, "hf:m is no repository"),
        ("org/m@", None, "is no folder"),
        ("/no/such/folder", None, "there is no folder /no/such/folder"),
        ("http://192.168.1.5/m", "v1", "--revision is for a repository of the hub, not for http"),
    ],
)
def test_sources_that_are_none(source: str, revision: str | None, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        places.place(source, HUB, revision)


@pytest.mark.parametrize(
    ("given", "where", "file"),
    [
        ("org/head", "org/head", "model-mtp.safetensors"),
        ("org/head@v1:mtp.safetensors", "org/head@v1", "mtp.safetensors"),
        ("hf:org/head", "org/head", "model-mtp.safetensors"),
        ("http://192.168.1.5:8080/head", "http://192.168.1.5:8080/head", "model-mtp.safetensors"),
        ("http://192.168.1.5:8080/head:x/h.safetensors", "http://192.168.1.5:8080/head", "x/h.safetensors"),
    ],
)
def test_what_a_head_means(given: str, where: str, file: str) -> None:
    place, found = places.head(given, HUB)
    assert (place.where, found) == (where, file)
