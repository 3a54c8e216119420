"""Which indexes and folders are asked: settings, then the environment, then pip's configuration, then its default."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gpufleet.settings import Mirrors
from gpufleet.wheelhouse import places as module
from gpufleet.wheelhouse.items import FetchError, FromIndex, Item
from gpufleet.wheelhouse.places import Places, configuration, default_index, places

LISTED = """:env:.disable-pip-version-check='1'
global.cert='/etc/ca.crt'
global.index-url='http://index.example/simple'
global.extra-index-url='http://more.example/simple file:///srv/simple'
global.find-links='{folder}\\nhttp://files.example/wheels'
"""
HELP = "  -i <url>  Base URL of the Package Index (default\n          https://default.example/simple). This"


def never(arguments: list[str]) -> str:
    raise AssertionError(f"pip was asked for {arguments}")


def item(version: str, beside: str | None = None) -> Item:
    return Item("t.whl", "0" * 64, 1, FromIndex("t", version, beside))


def test_a_setting_is_all_that_counts(tmp_path: Path) -> None:
    mirrors = Mirrors(pypi="http://m.example/simple/", torch="http://t.example/cpu")
    found = places(mirrors, {"PIP_INDEX_URL": "http://other", "PIP_FIND_LINKS": f"{tmp_path} /nowhere"}, never)
    assert found == Places(("http://m.example/simple/",), "http://t.example/cpu", (tmp_path,))


@pytest.mark.parametrize("name", ["PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"])
def test_the_environment_comes_next(name: str) -> None:
    environment = {name: "http://env.example/simple", "UV_INDEX": "torch=http://uv.example/x"}
    environment["PIP_EXTRA_INDEX_URL"] = "http://one http://two"
    found = places(Mirrors(), environment, never)
    assert found.indexes == ("http://env.example/simple", "http://one", "http://two", "http://uv.example/x")


def test_then_pips_configuration(tmp_path: Path) -> None:
    found = places(Mirrors(), {}, lambda arguments: LISTED.format(folder=tmp_path))
    assert found.indexes == ("http://index.example/simple", "http://more.example/simple", "file:///srv/simple")
    assert found.folders == (tmp_path,)


def test_and_pips_default_last() -> None:
    found = places(Mirrors(), {}, lambda arguments: "" if arguments == ["config", "list"] else HELP)
    assert found.indexes == ("https://default.example/simple",)


def test_no_index_at_all() -> None:
    assert places(Mirrors(), {}, lambda arguments: "global.no-index='true'\n").indexes == ()


def test_the_pip_at_hand_says_its_default() -> None:
    said = subprocess.run([sys.executable, "-m", "pip", "download", "--help"], check=True, capture_output=True)
    assert default_index(said.stdout.decode()).startswith("https://")
    with pytest.raises(FetchError, match=r"Set mirrors\.pypi"):
        default_index("no address")


def test_an_option_of_the_command_wins_over_the_global_one() -> None:
    listed = "download.index-url='http://b'\nglobal.index-url='http://a'\nglobal.timeout='60'\nrubbish\n"
    assert configuration(listed)["index-url"] == "http://b"
    assert configuration(listed + ":env:.index-url='http://c'\n")["index-url"] == "http://c"


def test_a_pip_that_fails_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.sys, "executable", "/bin/false")
    with pytest.raises(FetchError, match="pip cannot say which index it uses"):
        places(Mirrors(), {})


def test_torchs_index_is_first_for_its_builds_and_last_for_others() -> None:
    found = Places(("http://a/", "http://b"))
    assert found.for_item(item("2.13.0+cpu", "http://torch/cpu")) == ["http://torch/cpu", "http://a", "http://b"]
    assert found.for_item(item("2.13.0", "http://torch/cpu")) == ["http://a", "http://b", "http://torch/cpu"]
    assert found.for_item(item("2.13.0")) == ["http://a", "http://b"]
    assert Places(("http://a",), "http://mine").for_item(item("1", "http://torch")) == ["http://a", "http://mine"]
    assert Places(("http://a",), "http://a/").for_item(item("1")) == ["http://a"]
