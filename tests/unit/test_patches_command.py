"""`gpufleet patches check` says of each hunk whether it applies, to the pinned files and to another version."""

from __future__ import annotations

import shutil

import pytest

from tests.unit.patched import LINES, OFFLINE, SECOND, Owner, owner, wheel
from tests.unit.repositories import served
from tests.unit.servers import Server, sha256
from tests.unit.test_sdist import PATCH as SERIES
from tests.unit.test_sdist import released

__all__ = ["owner"]  # a fixture


def test_all_series_apply(owner: Owner) -> None:
    done = owner.check()
    assert done.stdout.splitlines() == [
        f"tiny-sm75: patches tiny on {owner.published.name}",
        "  0001-a.patch: applies, 2 hunks",
        "  0002-b.patch: applies, 1 hunk",
        f"tiny-sm75: patches quick on quick at {owner.source['commit'][:7]}",
        "  0001-b.patch: applies, 1 hunk",
        "all 2 series apply",
    ]
    assert done.exit_code == 0
    owner.published.unlink()
    assert owner.check("tiny-sm75").exit_code == 0, "what was fetched is kept"


def test_another_version_hunk_by_hunk(owner: Owner) -> None:
    """One hunk moved, one fails with the line it needs and the line there is; what follows is still looked at."""
    changed = ["new\n", *LINES[:20], "line 21, changed\n", *LINES[21:]]
    newer = wheel(owner.root / "newer", "1.3", changed)
    expected = [
        f"tiny-sm75: patches tiny on {newer.name}",
        "  0001-a.patch: FAILS, 1 of 2 hunks",
        "    tiny/a.py, hunk 1: +1 lines from where it was made",
        "    tiny/a.py, hunk 2 (line 8 of the patch): does not match: at line 22 it needs 'line 21\\n', "
        "the file has 'line 21, changed\\n'",
        "  0002-b.patch: applies, 1 hunk",
        "1 of 1 series fail",
    ]
    done = owner.check("--against", str(newer))
    assert (done.exit_code, done.stdout.splitlines()) == (1, expected)
    by_version = owner.check("tiny-sm75", "--against", "1.3", "--find-links", str(newer.parent))
    assert (by_version.exit_code, by_version.stdout.splitlines()) == (1, expected)


def test_another_version_from_the_index_is_kept_in_the_store(owner: Owner) -> None:
    newer = wheel(owner.index, "1.3", LINES)
    wheel(owner.index, "1.3.1", LINES)
    first = owner.check("tiny-sm75", "--against", "1.3")
    assert first.exit_code == 0 and first.stdout.startswith(f"tiny-sm75: patches tiny on {newer.name}\n")
    newer.unlink()
    assert owner.check("tiny-sm75", "--against", "1.3", *OFFLINE).stdout == first.stdout
    absent = owner.check("tiny-sm75", "--against", "1.3.1", *OFFLINE)
    assert absent.exit_code == 1 and "tiny 1.3.1: not in" in absent.stdout and "fetch.offline is set" in absent.stdout


def test_another_version_from_a_server_is_the_best_for_the_pages_python(owner: Owner) -> None:
    with Server() as server:
        links = []
        for tags in ("cp312-cp312-macosx_11_0_arm64", "cp312-cp312-manylinux_2_34_x86_64", "py3-none-any"):
            data = wheel(owner.root / "newer", "1.3", LINES).read_bytes()
            name = f"tiny-1.3-{tags}.whl"
            found = sha256(data + tags.encode())
            links.append({"filename": name, "url": server.add(f"/f/{name}", data + tags.encode())})
            links[-1]["hashes"] = {"sha256": found}
        server.index("tiny", *links)
        mirror = ("--set", f"mirrors.pypi={server.url}/simple")
        done = owner.check("tiny-sm75", "--against", "1.3", *mirror)
        assert done.stdout.splitlines()[0].endswith("on tiny-1.3-cp312-cp312-manylinux_2_34_x86_64.whl"), done.output
        links[1].pop("hashes")
        server.index("tiny", links[1] | {"filename": "tiny-1.4-py3-none-any.whl"})
        unsure = owner.check("tiny-sm75", "--against", "1.4", *mirror)
        assert unsure.exit_code == 1 and "says no sha256 of tiny-1.4-py3-none-any.whl" in unsure.stdout
        gone = owner.check("tiny-sm75", "--against", "7.7", *mirror)
        assert "has no wheel of that version for Linux and Python 3.12" in gone.stdout


def test_what_is_fetched_is_in_the_store_and_offline_nothing_is_asked(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUFLEET_STORE", str(owner.root / "disk"))
    before = owner.check("tiny-sm75", *OFFLINE)
    assert before.exit_code == 1 and before.stdout.count("fetch.offline is set") == 2, "the wheel and the source"
    assert owner.check("tiny-sm75").exit_code == 0
    digest = owner.wheel["sha256"]
    assert (owner.root / "disk" / digest[:2] / digest / owner.published.name).is_file()
    assert not (owner.root / "cache").exists()
    owner.published.unlink()
    shutil.rmtree(owner.root / "mirror")
    assert owner.check("tiny-sm75", *OFFLINE).exit_code == 0


def test_a_wheel_by_its_address_or_the_owners_mirror(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    aside = owner.root / "served"
    owner.index.rename(aside)
    with served(aside) as address:
        owner.wheel["url"] = f"{address}/{owner.published.name}"
        owner.page()
        assert owner.check("tiny-sm75").exit_code == 0
        monkeypatch.setenv("GPUFLEET_STORE", str(owner.root / "second"))
        owner.wheel["url"] = "http://no.invalid/releases/v1/tiny.whl"
        owner.page()
        assert owner.check("tiny-sm75", "--set", f"mirrors.files={address}/{{filename}}").exit_code == 0
        monkeypatch.setenv("GPUFLEET_STORE", str(owner.root / "third"))
        owner.wheel["url"] = f"{address}/other.whl"
        owner.page()
        assert "answers 404" in owner.check("tiny-sm75").stdout


def test_the_series_of_a_source_archive(owner: Owner) -> None:
    """Of a stack that is built from source: on the archive its page names; what cannot be had is said."""
    archive, digest = released(owner.index / "tiny-1.2.tar.gz")
    build = {"name": "tiny", "version": "1.2", "filename": archive.name, "sha256": digest, "patches": "tiny"}
    owner.series({"0001-two.patch": SERIES})
    owner.page(wheels=[], sources=[], from_source=True, build={**build, "lock": "tiny-build"})
    title = f"tiny-sm75: patches tiny on {archive.name}"
    refused = owner.check("tiny-sm75", *OFFLINE)
    assert refused.exit_code == 1 and refused.stdout.startswith(f"{title}\n  cannot be checked: {archive.name}: not in")
    done = owner.check("tiny-sm75")
    assert done.stdout.splitlines() == [title, "  0001-two.patch: applies, 3 hunks", "all 1 series apply"]
    owner.series({"0001-two.patch": SERIES.replace("-VALUE = 1", "-VALUE = 7")})
    done = owner.check("tiny-sm75")
    assert done.exit_code == 1 and "pkg/value.py, hunk 1 (line 3 of the patch): does not match" in done.stdout
    archive.write_bytes(b"another")
    beside = owner.check("tiny-sm75", "--find-links", str(owner.index))
    assert f"{archive} has another sha256" in beside.stdout


def test_hunks_that_only_moved_do(owner: Owner) -> None:
    newer = wheel(owner.root / "newer", "1.3", ["new\n", *LINES])
    done = owner.check("tiny-sm75", "--against", str(newer))
    assert done.exit_code == 0
    assert "  0001-a.patch: moved\n    tiny/a.py, hunk 1: +1 lines" in done.output
    assert done.stdout.endswith("all 1 series apply\n")


def test_a_later_patch_sees_the_earlier_ones(owner: Owner) -> None:
    owner.series(
        {"0001-b.patch": SECOND, "0002-b.patch": SECOND.replace("-b = 1", "-b = 2").replace("+b = 2", "+b = 3")}
    )
    assert "  0002-b.patch: applies, 1 hunk" in owner.check("tiny-sm75").output


def test_a_file_that_is_gone_and_a_patch_that_is_none(owner: Owner) -> None:
    owner.series({"0001-c.patch": SECOND.replace("tiny/b", "tiny/c"), "0002-none.patch": "words\n"})
    done = owner.check("tiny-sm75")
    assert done.exit_code == 1
    assert "  0001-c.patch: FAILS\n    tiny/c.py: no such file in the tree\n" in done.output
    assert "  0002-none.patch: FAILS\n    the patch: holds no change\n" in done.output


def test_what_cannot_be_had_fails_and_the_rest_goes_on(owner: Owner) -> None:
    owner.wheel["sha256"] = "0" * 64
    owner.page()
    done = owner.check("tiny-sm75")
    assert done.exit_code == 1
    assert "cannot be checked: 1 files cannot be found: tiny-1.2-" in done.output
    assert done.stdout.endswith("  0001-b.patch: applies, 1 hunk\n1 of 2 series fail\n")
    beside = owner.check("tiny-sm75", "--find-links", str(owner.index))
    assert f"{owner.published} has another sha256 than the stack says" in beside.output
    missing = owner.check("tiny-sm75", "--against", "7.7")
    assert missing.exit_code == 1 and "tiny 7.7: no wheel can be found" in missing.output
    nonsense = owner.check("tiny-sm75", "--against", "newest")
    assert nonsense.exit_code == 2 and "'newest' is no version" in nonsense.output


def test_a_source_whose_sum_is_not_known_yet_is_told(owner: Owner) -> None:
    right = owner.source["sha256"]
    owner.source["sha256"] = "0" * 64
    owner.page()
    done = owner.check("tiny-sm75")
    assert done.exit_code == 1 and f"write {right} into the page" in done.output


def test_a_bare_version_is_of_the_engine(owner: Owner) -> None:
    other = {**owner.wheel, "name": "other", "filename": "other-1.2-py3-none-any.whl"}
    owner.wheel["rename"] = "vllm"
    owner.page(wheels=[other, owner.wheel])
    newer = wheel(owner.root / "newer", "1.3", LINES)
    done = owner.check("tiny-sm75", "--against", "1.3", "--find-links", str(newer.parent))
    assert done.stdout.splitlines()[0] == f"tiny-sm75: patches tiny on {newer.name}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tiny-sm57"], "unknown stack 'tiny-sm57'; did you mean 'tiny-sm75'?"),
        (["--against", "1.3"], "say of which STACK"),
        (["--against", "gone.whl"], "there is no such file"),
        (["--against", "index/foo-1-py3-none-any.whl"], "what is patched: tiny"),
        (["--against", "index/odd.whl"], "keep the name"),
        (["--set", "mirors.git=x"], "mirors"),
    ],
)
def test_wrong_calls_end_with_2(owner: Owner, arguments: list[str], said: str) -> None:
    for name in ("foo-1-py3-none-any.whl", "odd.whl"):
        (owner.index / name).write_bytes(b"")
    done = owner.check(*arguments)
    assert done.exit_code == 2 and said in done.output


def test_a_stack_without_patches_has_none(owner: Owner) -> None:
    owner.page(wheels=[], sources=[])
    assert owner.check("tiny-sm75").output == "no patches\n"
    done = owner.check("tiny-sm75", "--against", "1.3")
    assert done.exit_code == 2 and "tiny-sm75 has no patched wheel" in done.output
