"""Pages in forms that `gpufleet models add` cannot renew, and folders that cannot be written: nothing is lost."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from gpufleet.architecture import Architecture
from gpufleet.cli import main
from gpufleet.errors import ConfigError
from gpufleet.schema import read
from tests.unit.test_models_command import checkpoint, fleet

__all__ = ["checkpoint", "fleet"]  # fixtures
HEAD = "schema: 1\nname: m\ntitle: t\nserved_name: mine\n"


def add(source: Path, *words: str) -> Result:
    found = CliRunner().invoke(main, ["models", "add", str(source), "--name", "m", "--force", *words])
    assert found.exception is None or isinstance(found.exception, SystemExit), repr(found.exception)
    return found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD + "x: &a {path: /x}\nsource: *a\nrevision: r\n", "unknown key 'x'"),
        ("{schema: 1, name: m, title: t, revision: r, source: {path: /x}, served_name: m}\n", "does not begin a line"),
        (HEAD + '"revision": r\nsource: {path: /x}\n', "revision does not begin a line"),
        (HEAD + "revision: r\nsource: {path: /x}\nmtp_head: 5\n", "mtp_head is no mapping"),
        (HEAD + "revision: [\n", "cannot be read"),
        ("- a\n", "is no mapping"),
        ("[" * 20_000, "cannot be read"),
        ("\ud800", "is no text in UTF-8"),
    ],
)
def test_a_page_that_cannot_be_renewed_stays(text: str, said: str, checkpoint: Path, fleet: Path) -> None:
    page = fleet / "files/models/m.yaml"
    page.parent.mkdir(parents=True)
    page.write_bytes(text.encode(errors="surrogatepass"))
    found = add(checkpoint)
    assert found.exit_code == 2
    assert said in found.stderr
    assert page.read_bytes() == text.encode(errors="surrogatepass")


def test_comments_and_empty_lines_in_a_part_of_a_page_belong_to_it(checkpoint: Path, fleet: Path) -> None:
    page = fleet / "files/models/m.yaml"
    page.parent.mkdir(parents=True)
    page.write_text(HEAD + "revision: r\n# kept\nsource:\n# where\n\n  path: /x\nargs:\n  a: 1\n# the end\n")
    assert add(checkpoint).exit_code == 0
    found = yaml.safe_load(page.read_text())
    assert (found["source"]["path"], found["args"]) == (str(checkpoint), {"a": 1})
    assert "# kept\nsource:\n  path" in page.read_text()
    assert page.read_text().endswith("# the end\n")


def test_a_link_to_a_page_stays_a_link(checkpoint: Path, fleet: Path, tmp_path: Path) -> None:
    page = fleet / "files/models/m.yaml"
    page.parent.mkdir(parents=True)
    page.symlink_to(tmp_path / "elsewhere.yaml")
    assert add(checkpoint).exit_code == 0
    assert page.is_symlink()
    assert yaml.safe_load((tmp_path / "elsewhere.yaml").read_text())["name"] == "m"


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_nothing_half_written_is_left(
    error: BaseException, checkpoint: Path, fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert add(checkpoint).exit_code == 0
    page = fleet / "files/models/m.yaml"
    page.write_text(before := page.read_text().replace("served_name: m", "served_name: mine").replace("1", "1", 1))
    write = Path.write_text

    def fails(self: Path, text: str, **more: Any) -> int:
        write(self, text[:10], **more)
        raise error

    monkeypatch.setattr(Path, "write_text", fails)
    (checkpoint / "config.json").write_bytes((checkpoint / "config.json").read_bytes() + b"\n")
    found = add(checkpoint)
    assert found.exit_code == (2 if isinstance(error, OSError) else 130)
    said = "cannot be written: No space left on device; the page that is there stays"
    assert (said if isinstance(error, OSError) else "interrupted") in found.stderr
    assert page.read_text() == before
    assert list(page.parent.iterdir()) == [page]


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_read(
    checkpoint: Path, fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpufleet.commands.models.os.access", lambda path, how: not how & os.W_OK)
    found = add(checkpoint, "--into", ".")
    assert found.exit_code == 2
    assert found.stderr.splitlines() == [
        line for line in found.stderr.splitlines() if line.startswith("gpufleet: . can")
    ]
    assert add(checkpoint, "--print").exit_code == 0


def test_a_model_has_layers() -> None:
    sizes = dict.fromkeys(("hidden_size", "intermediate_size", "heads", "kv_heads", "head_dim", "vocab_size"), 8)
    given = {"family": "x", "max_positions": 8, "weights_mib": 1, **sizes}
    with pytest.raises(ConfigError, match="names no layers"):
        read(Architecture, {**given, "layers": {}}, "page")
    with pytest.raises(ConfigError, match="hidden_size"):
        read(Architecture, {**given, "layers": {"full_attention": 1}, "hidden_size": 1 << 41}, "page")
