"""What apt says while it fetches lists: a failure, but for what costs nothing and repositories that are not needed.

The texts are apt 2.6's own, but for those of newer versions that are marked so.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hostkit import apt_sources, apt_warnings
from hostkit.apt_warnings import Problem
from hostkit.errors import Failure

CUDA = "http://192.0.2.1/cuda/debian12/x86_64/"
NO_KEY = "The following signatures couldn't be verified because the public key is not available: NO_PUBKEY 6979EA7E"
OLD_LISTS = (
    "W: An error occurred during the signature verification. The repository is not updated and the previous index "
    f"files will be used. GPG error: http://192.0.2.1/cuda/debian12/x86_64  InRelease: {NO_KEY}\n"
    f"W: Failed to fetch http://192.0.2.1/cuda/debian12/x86_64/./InRelease  {NO_KEY}\n"
    "W: Some index files failed to download. They have been ignored, or old ones used instead.\n"
)
UNREACHABLE = (
    "Ign:1 http://192.0.2.9/x stable InRelease\n"
    "Err:1 http://192.0.2.9/x stable InRelease\n"
    "  Could not connect to 192.0.2.9:80 (192.0.2.9). - connect (111: Connection refused)\n"
)


@pytest.fixture(autouse=True)
def lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(apt_sources, "LIST", str(tmp_path / "sources.list"))
    monkeypatch.setattr(apt_sources, "SOURCES", str(tmp_path))
    (tmp_path / "foreign.list").write_text("deb http://192.0.2.9/x stable main\n")
    (tmp_path / "mine.sources").write_text("Types: deb\nURIs: http://192.0.2.7/debian\nSuites: bookworm\n")
    return tmp_path


def test_a_wrong_key_with_old_lists_is_one_problem_of_its_repository() -> None:
    (found,) = apt_warnings.problems(OLD_LISTS, CUDA)
    assert found.repository == "http://192.0.2.1/cuda/debian12/x86_64" and "NO_PUBKEY" in found.text
    with pytest.raises(
        Failure, match=r"lists of http://192\.0\.2\.1/cuda/debian12/x86_64: .*NO_PUBKEY 6979EA7E"
    ) as said:
        apt_warnings.refuse([found], CUDA)
    assert "mirrors.cuda_key_fingerprint" in said.value.remedy


def test_a_repository_is_named_also_where_apt_has_only_an_error_of_another() -> None:
    output = UNREACHABLE + "E: The repository 'file:/srv/b  Release' no longer has a Release file.\n"
    assert [item.repository for item in apt_warnings.problems(output, CUDA)] == ["file:/srv/b", "http://192.0.2.9/x"]


@pytest.mark.parametrize(
    "warning",
    [
        "Target Packages (main/binary-amd64/Packages) is configured multiple times in /etc/apt/sources.list:1 and "
        "/etc/apt/sources.list.d/x.list:1",
        "http://192.0.2.9/x/dists/stable/InRelease: Key is stored in legacy trusted.gpg keyring "
        "(/etc/apt/trusted.gpg), see the DEPRECATION section in apt-key(8) for details.",
        "Conflicting distribution: http://192.0.2.9/x stable InRelease (expected stable but got bookworm)",
        "Skipping acquire of configured file 'non/binary-amd64/Packages' as repository 'http://192.0.2.9/x stable "
        "InRelease' doesn't have the component 'non' (component misspelt in sources.list?)",
        # apt 2.8 and 3.0
        "http://192.0.2.9/x/dists/stable/InRelease: Signature by key 0123 uses weak algorithm (rsa1024)",
        "http://192.0.2.9/x/dists/stable/InRelease: Policy will reject signature within a year",
        # of sources marked trusted
        "The repository 'http://192.0.2.9/x stable Release' does not have a Release file.",
        f"GPG error: http://192.0.2.9/x stable InRelease: {NO_KEY}",
    ],
)
def test_what_costs_nothing_is_let_pass(warning: str) -> None:
    output = f"W: {warning}\nN: Skipping acquire of configured file 'x' as it doesn't support architecture 'i386'\n"
    assert apt_warnings.problems(output, CUDA) == []
    assert apt_warnings.problems(f"E: {warning}\n", CUDA) != []


@pytest.mark.parametrize(
    "warning",
    [
        f"The repository '{CUDA.rstrip('/')}  Release' does not have a Release file.",
        f"GPG error: {CUDA.rstrip('/')}  InRelease: {NO_KEY}",
        "An error occurred during the signature verification. GPG error: http://192.0.2.9/x stable InRelease: The "
        "following signatures were invalid: 0123 uses weak algorithm (rsa1024)",
        f"GPG error: http://192.0.2.9/x  InRelease: {NO_KEY}\nE: The repository 'http://192.0.2.9/x  InRelease' is not "
        "signed.",
        "Nobody has seen this one",
    ],
)
def test_what_looks_like_it_is_not(warning: str) -> None:
    assert len(apt_warnings.problems(f"W: {warning}\n", CUDA)) == 1


@pytest.mark.parametrize("url", ["http://mirror.debian.org/x", "http://mirror.ubuntu.com/x", CUDA[:-1], None])
def test_the_systems_own_the_toolkits_and_what_names_none_are_refused_at_once(url: str | None) -> None:
    with pytest.raises(Failure, match="apt-get update"):
        apt_warnings.refuse([Problem("it is expired", url)], CUDA)


@pytest.mark.parametrize("url", ["http://192.0.2.9/x", "http://notdebian.org/debian", "http://192.0.2.1/cuda/debian12"])
def test_a_foreign_one_is_refused_only_where_it_is_needed(url: str) -> None:
    later = apt_warnings.refuse([Problem("it is expired", url)], CUDA)
    apt_warnings.refuse_needed(later, ["http://192.0.2.7/debian"], CUDA)
    with pytest.raises(Failure, match=url):
        apt_warnings.refuse_needed(later, ["http://192.0.2.7/debian", url + "/"], CUDA)


def test_how_to_go_on_is_said_with_the_file(lists: Path) -> None:
    said = apt_warnings.failure(Problem(NO_KEY, "http://192.0.2.9/x"), CUDA)
    assert (
        said.remedy == f"put that repository's present key in place; or take the repository out of {lists}/foreign.list"
    )
    changed = Problem(
        "Repository 'http://192.0.2.9/x stable InRelease' changed its 'Label' value from 'a' to 'b'", "http://x"
    )
    assert "--allow-releaseinfo-change" in apt_warnings.failure(changed).remedy
    assert (
        "see that the box reaches it" in apt_warnings.failure(Problem("Could not connect", "http://192.0.2.9/x")).remedy
    )
