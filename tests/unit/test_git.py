"""Files of a git repository come at one commit, checked, once; and every way that this can fail says which."""

from __future__ import annotations

import os
import shutil
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from gpufleet.parts import GitPatches
from gpufleet.wheelhouse import git as module
from gpufleet.wheelhouse import mirror
from gpufleet.wheelhouse.git import Git, GitError
from tests.unit.repositories import commit, git, served

ADDRESS = "https://example.org/somebody/patches"
FIRST = {"patches/a.patch": b"first\r\n\xff", "patches/b.patch": b"", "src/x.cu": b"x" * 5000, "src/deep/y.py": b"y\n"}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return tmp_path / "mirror" / "somebody" / "patches"


@pytest.fixture
def pinned(repository: Path) -> str:
    """A commit that is no branch's last any more."""
    found = commit(repository, FIRST)
    commit(repository, {"patches/a.patch": b"second\n"})
    return found


@pytest.fixture
def source(tmp_path: Path) -> Git:
    return Git(tmp_path / "cache", f"file://{tmp_path}/mirror/{{path}}")


def wanted(pinned: str, **hashes: bytes) -> GitPatches:
    files = [
        {"path": f"patches/{name}.patch", "sha256": sha256(content).hexdigest()} for name, content in hashes.items()
    ]
    return GitPatches.model_validate({"git": ADDRESS, "commit": pinned, "files": files})


def test_files_of_an_older_commit_to_the_byte(source: Git, pinned: str) -> None:
    assert source.files(ADDRESS, pinned, list(FIRST)) == FIRST
    assert source.tree(ADDRESS, pinned, ["src"]) == {path: FIRST[path] for path in ("src/x.cu", "src/deep/y.py")}


def test_only_that_commit_is_fetched(source: Git, pinned: str, repository: Path) -> None:
    last = git(repository, "rev-parse", "HEAD")
    source.files(ADDRESS, last, ["src/x.cu"])
    kept = source.cache / f"{last}.git"
    assert git(kept, "rev-list", "--all", last).split() == [last], "without its history"
    assert not (kept / "hooks").exists()


def test_the_second_time_nothing_is_asked(source: Git, pinned: str, repository: Path) -> None:
    found = source.files(ADDRESS, pinned, ["src/x.cu"])
    shutil.rmtree(repository)
    assert source.files(ADDRESS, pinned, ["src/x.cu"]) == found
    assert Git(source.cache, offline=True).files(ADDRESS, pinned, ["src/x.cu"]) == found
    with pytest.raises(GitError, match=r"fetch\.offline is set"):
        Git(source.cache, offline=True).files(ADDRESS, "1" * 40, ["src/x.cu"])


def test_patches_in_the_order_of_the_page_and_checked(source: Git, pinned: str) -> None:
    series = source.series(wanted(pinned, b=FIRST["patches/b.patch"], a=FIRST["patches/a.patch"]))
    assert [patch.name for patch in series.patches] == ["b.patch", "a.patch"]
    assert series.patches[1].text.encode("utf-8", "surrogateescape") == FIRST["patches/a.patch"]
    with pytest.raises(GitError, match=rf"a\.patch at commit {pinned} has sha256 .*, the stack says"):
        source.series(wanted(pinned, a=b"second\n"))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (lambda git, pinned: git.files(ADDRESS, pinned, ["patches/c.patch"]), "has no file patches/c.patch"),
        (lambda git, pinned: git.files(ADDRESS, pinned, ["patches"]), "has no file patches "),
        (lambda git, pinned: git.tree(ADDRESS, pinned, ["src", "sr"]), "has no folder sr "),
        (lambda git, _: git.files(ADDRESS, "1" * 40, ["src/x.cu"]), f"has no commit {'1' * 40}"),
        (lambda git, pinned: git.files(ADDRESS + "-2", pinned, ["src/x.cu"]), "is no git repository"),
        (lambda git, pinned: Git(git.cache).files("http://127.0.0.1:9/a/b", pinned, ["x"]), "was not reached"),
        (lambda git, pinned: Git(git.cache).files("http://no.invalid/a/b", pinned, ["x"]), "was not reached"),
    ],
)
def test_what_is_not_there_is_said(source: Git, pinned: str, found: Any, said: str) -> None:
    with pytest.raises(GitError, match=said):
        found(source, pinned)
    assert [path.suffix for path in source.cache.iterdir() if path.name != f"{pinned}.git"] == []


def test_links_are_refused(source: Git, repository: Path) -> None:
    commit(repository, FIRST)
    (repository / "src" / "link").symlink_to("/etc/passwd")
    with pytest.raises(GitError, match=r"src/link at commit .* is a link"):
        source.tree(ADDRESS, commit(repository, {}), ["src"])


def test_a_damaged_folder_is_named(source: Git, pinned: str) -> None:
    source.files(ADDRESS, pinned, ["src/x.cu"])
    for thing in (source.cache / f"{pinned}.git" / "objects").rglob("*"):
        if thing.is_file():
            thing.unlink()
    with pytest.raises(GitError, match=rf"{pinned}\.git is damaged: .*Delete that folder"):
        source.files(ADDRESS, pinned, ["src/x.cu"])


def test_without_git_it_is_said(source: Git, pinned: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(GitError, match=r"no git program on this machine. Install it"):
        source.files(ADDRESS, pinned, ["src/x.cu"])


def test_a_git_that_hangs_is_ended_with_all_it_started(
    source: Git, pinned: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nsleep 600 &\necho $! > "{tmp_path}/pid"\nwait\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 1)
    with pytest.raises(GitError, match="did not end in 1 s"):
        source.files(ADDRESS, pinned, ["src/x.cu"])
    child = Path("/proc") / (tmp_path / "pid").read_text().strip() / "stat"
    while child.exists() and child.read_text().split()[2] != "Z":  # a zombie is ended, and its parent's to bury
        time.sleep(0.01)


def test_the_users_configuration_takes_no_part(
    source: Git, pinned: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a configuration or a variable of git's own can start, or turn elsewhere, it does not."""
    mark = tmp_path / "was-run"
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        f'[core]\n\thooksPath = {home}\n\tfsmonitor = "touch {mark}"\n'
        f'[url "file:///nowhere/"]\n\tinsteadOf = file://\n[transfer]\n\tfsckObjects = nonsense\n'
    )
    for name in ("post-checkout", "reference-transaction"):
        (home / name).write_text(f"#!/bin/sh\ntouch {mark}\n")
        (home / name).chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    for name in ("GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_EXTERNAL_DIFF", "GIT_PAGER"):
        monkeypatch.setenv(name, f"touch {mark}")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", "/nowhere/objects")
    assert source.files(ADDRESS, pinned, ["src/x.cu"]) == {"src/x.cu": FIRST["src/x.cu"]}
    assert not mark.exists()


def test_an_address_cannot_start_a_program(source: Git, tmp_path: Path) -> None:
    mark = tmp_path / "was-run"
    with pytest.raises(GitError, match="not allowed"):
        Git(source.cache).files(f"ext::touch {mark}", "1" * 40, ["x"])
    assert not mark.exists()


def test_a_server_that_has_only_files(tmp_path: Path, repository: Path, pinned: str) -> None:
    """It gives out no part of a history: the branches come whole, and the commit is found in them."""
    bare = tmp_path / "www" / "somebody" / "patches.git"
    git(tmp_path, "clone", "--quiet", "--bare", str(repository), str(bare))
    git(bare, "update-server-info")
    with served(tmp_path / "www") as address:
        found = Git(tmp_path / "cache", f"{address}/{{path}}.git")
        assert found.files(ADDRESS, pinned, ["src/x.cu"]) == {"src/x.cu": FIRST["src/x.cu"]}
        with pytest.raises(GitError, match="has no commit 1111"):
            found.files(ADDRESS, "1" * 40, ["src/x.cu"])


@pytest.mark.parametrize(
    ("address", "to", "expected"),
    [
        ("https://github.com/a/b", None, "https://github.com/a/b"),
        ("https://github.com/a/b.git", "http://192.168.1.5/git/{path}", "http://192.168.1.5/git/a/b"),
        ("https://github.com/a/b/", "file:///srv/git/{path}.git", "file:///srv/git/a/b.git"),
        ("https://gitlab.com/group/sub/b", "http://m/{path}", "http://m/group/sub/b"),
    ],
)
def test_a_mirror_takes_the_place_of_the_host(address: str, to: str | None, expected: str) -> None:
    assert mirror.of_git(address, to) == expected
