"""`gpufleet init`: what it writes, what it refuses, and that it writes all or nothing."""

from __future__ import annotations

import ast
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from gpufleet import catalogue, folder_files, inventory, paths
from gpufleet.cli import main
from gpufleet.commands import init as command
from gpufleet.models import Model
from tests.tiny_qwen3 import checkpoint
from tests.unit.checkpoint_server import COMMIT, Site

FILES = {
    "deploy.py",
    "config.py",
    "inventory/home.py",
    "group_data/all.py",
    "files/models/README.md",
    "files/stacks/README.md",
    ".gitignore",
}
BOX = ("--box", "turing-1=192.0.2.1")


def init(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["init", *map(str, arguments)])


def there(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def boxes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Those of the inventory that was written, run as pyinfra runs it."""
    monkeypatch.chdir(folder)
    return list(runpy.run_path(str(folder / "inventory" / "home.py"))["boxes"])


@pytest.mark.parametrize("is_there", [False, True])
def test_all_files_are_written_and_named(tmp_path: Path, is_there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my fleets" / "home"
    if is_there:
        folder.mkdir(parents=True)
    done = init(folder, *BOX, "--serve", "qwen3-0.6b")
    assert done.exit_code == 0, done.output
    assert there(folder) == FILES
    said, following = done.stdout.splitlines()
    assert all(name in said for name in FILES)
    assert following.startswith(f"next: gpufleet deploy '{folder}/inventory/home.py' ")
    found = [("turing-1", {"ssh_hostname": "192.0.2.1", "serve": ["qwen3-0.6b"]})]
    assert boxes(folder, monkeypatch) == found
    assert inventory.current().boxes["turing-1"].data == {"serve": ["qwen3-0.6b"]}


@pytest.mark.parametrize(
    ("given", "data"),
    [
        ("192.0.2.1", {"ssh_hostname": "192.0.2.1"}),
        ("attic.lan", {"ssh_hostname": "attic.lan"}),
        ("192.0.2.1:2200", {"ssh_hostname": "192.0.2.1", "ssh_port": 2200}),
        ("me@192.0.2.1", {"ssh_hostname": "192.0.2.1", "ssh_user": "me"}),
        ("me@attic:22", {"ssh_hostname": "attic", "ssh_port": 22, "ssh_user": "me"}),
        ("2001:db8::7", {"ssh_hostname": "2001:db8::7"}),
        ("root@[fe80::1%eth0]:22", None),
        ("[2001:db8::7]:2200", {"ssh_hostname": "2001:db8::7", "ssh_port": 2200}),
        ("", None),
        ("a b", None),
        ("192.0.2.1:ssh", None),
        ("me@", None),
        ("me:secret@192.0.2.1", None),
        ("--dry", None),
    ],
)
def test_an_address_is_as_ssh_has_it(
    tmp_path: Path, given: str, data: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = init(tmp_path / "fleet", "--box", f"a={given}")
    if data is None:
        assert done.exit_code == 2 and f"{given!r} is no address" in done.stderr, done.output
        assert not (tmp_path / "fleet").exists()
    else:
        assert done.exit_code == 0, done.output
        assert boxes(tmp_path / "fleet", monkeypatch) == [("a", data)]


def test_user_is_for_boxes_that_say_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = init(tmp_path, "--box", "a=192.0.2.1", "--box", "b=ops@192.0.2.2", "--user", "root")
    assert done.exit_code == 0, done.output
    assert [data["ssh_user"] for _, data in boxes(tmp_path, monkeypatch)] == ["root", "ops"]


def test_a_name_alone_is_a_box_of_the_ssh_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host attic-box-of-mine\n    HostName 192.0.2.1\n")
    done = init(tmp_path / "fleet", "--box", "attic-box-of-mine")
    assert done.exit_code == 0, done.output
    assert boxes(tmp_path / "fleet", monkeypatch) == [("attic-box-of-mine", {})]
    done = init(tmp_path / "other", "--box", "no-such-box.invalid")
    assert done.exit_code == 2 and "add ssh_hostname, or a Host no-such-box.invalid" in done.stderr


def test_settings_are_those_of_all_boxes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["mirrors.hub=https://hub.example", "serve_args.max-model-len=8192", "serve_env.X=1", "host.hosts_entry=no"]
    assert init(tmp_path / "a", *BOX, "--set", "host.hosts_entry=no").exit_code == 2
    given[3] = "host.hosts_entry=false"
    done = init(tmp_path / "b", *BOX, *(word for item in given for word in ("--set", item)))
    assert done.exit_code == 0, done.output
    boxes(tmp_path / "b", monkeypatch)
    (layer,) = inventory.current().layers["all"]
    assert layer.values == {
        "mirrors": {"hub": "https://hub.example"},
        "serve_args": {"max-model-len": 8192},
        "serve_env": {"X": "1"},
        "host": {"hosts_entry": False},
    }


def test_without_a_box_the_next_command_is_to_write_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = init(tmp_path / "fleet")
    assert done.exit_code == 0 and "next: write your boxes into" in done.stdout, done.output
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(main, ["plan", "fleet/inventory/home.py"])
    assert said.exit_code == 2


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    folder = tmp_path / "Qwen3-0.6B"
    checkpoint(folder)
    with Site(repos={"Qwen/Qwen3-0.6B": {path.name: path.read_bytes() for path in folder.iterdir()}}) as site:
        yield site


def test_a_repository_of_the_hub_gets_its_page_with_the_recipe_that_comes_along(
    tmp_path: Path, hub: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "fleet"
    done = init(folder, *BOX, "--serve", "Qwen/Qwen3-0.6B", "--set", f"mirrors.hub={hub.url}")
    assert done.exit_code == 0, done.output
    assert there(folder) == FILES | {"files/models/qwen3-0.6b.yaml"}
    assert boxes(folder, monkeypatch)[0][1]["serve"] == ["qwen3-0.6b"]
    model = inventory.current().models["qwen3-0.6b"]
    shipped = catalogue.load(Model, "model", paths.model_folders())["qwen3-0.6b"]
    assert (model.source.hub, model.source.commit) == ("Qwen/Qwen3-0.6B", COMMIT)
    assert (model.args, model.gate) == (shipped.args, shipped.gate)


def test_a_hub_that_does_not_have_it_ends_it_with_nothing_written(tmp_path: Path, hub: Site) -> None:
    done = init(tmp_path / "fleet", *BOX, "--serve", "Qwen/No-Such", "--set", f"mirrors.hub={hub.url}")
    assert done.exit_code == 1 and "gpufleet: Qwen/No-Such" in done.stderr, done.output
    assert not (tmp_path / "fleet").exists()


def test_no_hub_is_asked_for_what_will_be_refused(tmp_path: Path, hub: Site) -> None:
    (tmp_path / "deploy.py").write_text("mine\n")
    mirror = ("--serve", "Qwen/Qwen3-0.6B", "--set", f"mirrors.hub={hub.url}")
    assert init(tmp_path, *BOX, *mirror).exit_code == 2
    assert init(tmp_path / "fleet", "--box", "a=b c", *mirror).exit_code == 2
    assert hub.asked == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--serve", "qwen3-0.6b"], "give them with --box"),
        (["--user", "root"], "give them with --box"),
        ([*BOX, "--serve", "qwen3-0.6"], "did you mean 'qwen3-0.6b'?"),
        ([*BOX, *BOX], "turing-1 is there twice"),
        ([*BOX, "--box", "b=192.0.2.1"], "have the same address"),
        (["--box", "a/b=192.0.2.1"], "a name is letters, digits"),
        ([*BOX, "--set", "mirors.hub=https://hub.example"], "did you mean 'mirrors'?"),
        ([*BOX, "--set", "stack=vllm-0"], "unknown stack 'vllm-0'"),
        *(
            (["--box", f"a=192.0.2.1:{port}"], f"ssh_port is {port}; it must be 1 to 65535")
            for port in (0, 65536, 99999)
        ),
        (["--box", "a=me@you@192.0.2.1"], "'me@you@192.0.2.1' is no address"),
        ([*BOX, "--user", "a b"], "--user 'a b': ssh_user is 'a b'"),
        ([*BOX, "--user", ""], "--user '': ssh_user is ''"),
        (["--user", ""], "give them with --box"),
        *((["--box", f"{name}=192.0.2.1"], "give it another name") for name in ("fleet", "all", "home", "sm75", "cpu")),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(tmp_path: Path, arguments: list[str], says: str) -> None:
    done = init(tmp_path / "fleet", *arguments)
    assert done.exit_code == 2 and says in done.stderr, done.output
    assert not (tmp_path / "fleet").exists()


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_that_is_there_is_not_written_over_and_nothing_else_is(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine\n")
    done = init(tmp_path, *BOX)
    assert done.exit_code == 2 and f"has {name} already, and nothing was written" in done.stderr, done.output
    assert there(tmp_path) == {name} and path.read_text() == "mine\n"


def test_a_link_that_leads_nowhere_is_a_file_too(tmp_path: Path) -> None:
    (tmp_path / "deploy.py").symlink_to(tmp_path / "elsewhere")
    done = init(tmp_path)
    assert done.exit_code == 2 and "has deploy.py already" in done.stderr
    assert there(tmp_path) == {"deploy.py"}


def test_a_folder_with_other_files_is_fine_and_its_pages_count(tmp_path: Path) -> None:
    page = Path("files/models/qwen3-0.6b.yaml").read_text().replace("name: qwen3-0.6b", "name: mine")
    (tmp_path / "files" / "models").mkdir(parents=True)
    (tmp_path / "files" / "models" / "mine.yaml").write_text(page)
    (tmp_path / ".git").mkdir()
    done = init(tmp_path, *BOX, "--serve", "mine")
    assert done.exit_code == 0, done.output
    assert there(tmp_path) == FILES | {"files/models/mine.yaml"}


def test_the_products_own_folder_is_refused() -> None:
    done = init(".")
    assert done.exit_code == 2 and "deploy.py, config.py, inventory/home.py" in done.stderr


def test_a_file_in_the_way_is_said_and_nothing_stays(tmp_path: Path) -> None:
    (tmp_path / "fleet").write_text("mine\n")
    done = init(tmp_path / "fleet")
    assert done.exit_code == 2 and "is a file: name a folder" in done.stderr
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "files").write_text("mine\n")  # in the way of folders only when others are written already
    done = init(folder)
    assert done.exit_code == 2 and "cannot be written" in done.stderr, done.output
    assert sorted(path.name for path in folder.iterdir()) == ["files"]


def test_interrupted_it_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = command._into

    def interrupted(path: Path, text: str, made: list[Path]) -> None:
        if path.name == ".gitignore":
            raise KeyboardInterrupt
        original(path, text, made)

    monkeypatch.setattr(command, "_into", interrupted)
    with pytest.raises(KeyboardInterrupt):
        command.write(tmp_path / "fleet", folder_files.files([], {}, {}))
    assert list(tmp_path.iterdir()) == []


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_a_value_is_written_as_python_that_means_it(value: object) -> None:
    assert ast.literal_eval(folder_files.literal(value)) == value


def test_what_is_thin_stays_thin() -> None:
    """An owner's deploy.py and config.py have one call each: what they do is the product's, and can be upgraded."""
    for text in (folder_files.DEPLOY, folder_files.CONFIG):
        _, module, call = ast.parse(text).body
        assert isinstance(module, ast.ImportFrom) and module.module == "operations"
        assert isinstance(call, ast.Expr) and isinstance(call.value, ast.Call) and not call.value.args
