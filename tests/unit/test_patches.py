"""Patch series are applied exactly or not at all, and a failure says where."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufleet.patches import Patch, PatchError, Series, read_series
from gpufleet.patching import apply

OLD = b"one\ntwo\nthree\nfour\nfive\n"
CHANGE = """--- a/pkg/x.py
+++ b/pkg/x.py
@@ -1,5 +1,5 @@
 one
 two
-three
+3
 four
 five
"""


def series(*texts: str) -> Series:
    return Series(tuple(Patch(f"000{number}-test.patch", text) for number, text in enumerate(texts, 1)))


def failure(patches: Series, files: dict[str, bytes]) -> PatchError:
    with pytest.raises(PatchError) as caught:
        apply(patches, files.get)
    return caught.value


def test_exact_place() -> None:
    result = apply(series("Subject: why\n\n" + CHANGE), {"pkg/x.py": OLD}.get)
    assert result.files == {"pkg/x.py": b"one\ntwo\n3\nfour\nfive\n"}
    assert result.moved == []


def test_moves_to_the_only_match_and_says_so() -> None:
    result = apply(series(CHANGE), {"pkg/x.py": b"new\nlines\n" + OLD}.get)
    assert result.files == {"pkg/x.py": b"new\nlines\none\ntwo\n3\nfour\nfive\n"}
    assert result.moved == ["0001-test.patch: pkg/x.py, hunk 1: applied +2 lines from where it was made"]


def test_two_matches_elsewhere_are_refused() -> None:
    error = failure(series(CHANGE), {"pkg/x.py": b"new\n" + OLD + OLD})
    assert "matches at lines 2, 7 but not where it says" in str(error)


def test_a_failing_hunk_is_named() -> None:
    second = CHANGE + "@@ -20,3 +20,3 @@\n a\n-b\n+B\n c\n"
    error = failure(series(second), {"pkg/x.py": OLD + b"\n" * 14 + b"a\nb changed\nc\n"})
    assert (error.patch, error.target, error.hunk, error.line) == ("0001-test.patch", "pkg/x.py", 2, 10)
    assert str(error) == (
        "0001-test.patch:10: pkg/x.py, hunk 2: does not match: at line 21 it needs 'b\\n', the file has 'b changed\\n'"
    )


def test_no_fuzz_on_whitespace_or_line_ends() -> None:
    assert "does not match" in str(failure(series(CHANGE), {"pkg/x.py": OLD.replace(b"two", b"two ")}))
    assert "does not match" in str(failure(series(CHANGE), {"pkg/x.py": OLD.replace(b"\n", b"\r\n")}))


def test_applied_twice_is_refused() -> None:
    error = failure(series(CHANGE, CHANGE), {"pkg/x.py": OLD})
    assert error.patch == "0002-test.patch"


def test_a_later_patch_sees_what_an_earlier_one_did() -> None:
    again = CHANGE.replace("-three", "-3").replace("+3\n", "+drei\n")
    assert apply(series(CHANGE, again), {"pkg/x.py": OLD}.get).files == {"pkg/x.py": b"one\ntwo\ndrei\nfour\nfive\n"}


def test_create_and_remove() -> None:
    create = "--- /dev/null\n+++ b/new.py\n@@ -0,0 +1,2 @@\n+a\n+b\n"
    remove = "--- a/old.py\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n"
    assert apply(series(create + remove), {"old.py": b"a\nb\n"}.get).files == {"new.py": b"a\nb\n", "old.py": None}
    assert "is there already" in str(failure(series(create), {"new.py": b""}))
    assert "lines the patch does not know" in str(failure(series(remove), {"old.py": b"a\nb\nc\n"}))


def test_no_newline_at_the_end() -> None:
    text = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file\n"
    assert apply(series(text), {"x": b"a\nb"}.get).files == {"x": b"a\nc"}
    assert "does not match" in str(failure(series(text), {"x": b"a\nb\n"}))


def test_no_line_is_glued_to_the_next() -> None:
    """A patch that ends a file without a newline must not be taken for the middle of a longer file."""
    text = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file\n"
    assert apply(series(text), {"x": b"a\n"}.get).files == {"x": b"b"}
    assert "the file goes on after line 1" in str(failure(series(text), {"x": b"a\nc\n"}))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("just words\n", "holds no change"),
        (CHANGE.replace("-1,5 +1,5", "-1,6 +1,6"), "not a unified diff"),
        (CHANGE.replace("-1,5 +1,5", "-1,4 +1,4"), "more lines than its header counts"),
        (CHANGE + "@@ -9 oops\n x\n", "damaged"),
        (CHANGE.replace("pkg/x.py", "../x.py"), "leaves the tree"),
        (CHANGE.replace("b/pkg/x.py", "b/pkg/y.py"), "of one path"),
        (CHANGE.replace("a/pkg/x.py", "pkg/x.py"), "of one path"),
        (CHANGE.replace("pkg/x.py", "pkg/z.py"), "no such file in the tree"),
        ("--- a/pkg/x.py\n+++ b/pkg/x.py\n@@ -2,0 +3 @@\n+hm\n", "without any context"),
        (CHANGE + "diff --git a/l b/l\nold mode 100644\nnew mode 100755\n", "only changes of text"),
    ],
)
def test_refusals(text: str, reason: str) -> None:
    assert reason in str(failure(series(text), {"pkg/x.py": OLD}))


def test_a_series_lists_all_its_patches(tmp_path: Path) -> None:
    with pytest.raises(PatchError, match="no such file"):
        read_series(tmp_path)
    (tmp_path / "0001-a.patch").write_text(CHANGE)
    (tmp_path / "0002-b.patch").write_text(CHANGE)
    index = tmp_path / "series"
    index.write_text("# order matters\n0002-b.patch\n\n0001-a.patch\n")
    one = read_series(tmp_path)
    assert [patch.name for patch in one.patches] == ["0002-b.patch", "0001-a.patch"]
    index.write_text("0001-a.patch\n0002-b.patch\n")
    assert read_series(tmp_path).digest != one.digest, "the order is part of the digest"
    for listed, reason in [
        ("0001-a.patch\n", "not listed: 0002-b.patch"),
        ("0001-a.patch\n0001-a.patch\n0002-b.patch\n", "listed twice"),
        ("0001-a.patch\n0002-b.patch\n0003-c.patch\n", "0003-c.patch is listed, but"),
    ]:
        index.write_text(listed)
        with pytest.raises(PatchError, match=reason):
            read_series(tmp_path)


def test_shipped_series_parse() -> None:
    shipped = sorted((Path(__file__).parents[2] / "files" / "patches").iterdir())
    assert shipped
    for folder in shipped:
        for patch in read_series(folder).patches:
            for word in ("What:", "Why:", "Upstream:", "Seen by:"):
                assert word in patch.text, f"{folder.name}/{patch.name} has no {word} in its header"


line = st.text(alphabet="ab \t\r\f\x85\u2028é", max_size=3)
texts = st.builds(
    lambda lines, end: "\n".join(lines) + end, st.lists(line, min_size=1, max_size=12), st.sampled_from(["", "\n"])
)


def lines(text: str) -> list[str]:
    *whole, rest = text.split("\n")
    return [part + "\n" for part in whole] + ([rest] if rest else [])


def diff(old: str, new: str, context: int) -> str:
    """A unified diff as GNU diff writes it, also for a last line without newline."""
    made = difflib.unified_diff(lines(old), lines(new), "a/f", "b/f", n=context)
    return "".join(part if part.endswith("\n") else part + "\n\\ No newline at end of file\n" for part in made)


@given(texts, texts, st.integers(1, 3))
def test_a_diff_takes_old_to_new(old: str, new: str, context: int) -> None:
    text = diff(old, new, context)
    if not text or not old or not new:
        return
    assert apply(series(text), {"f": old.encode()}.get).files == {"f": new.encode()}


@given(texts, texts, texts)
def test_on_another_file_it_gives_an_error_or_every_line_it_promised(old: str, new: str, other: str) -> None:
    text = diff(old, new, 2)
    if not text or not old or not new:
        return
    try:
        result = apply(series(text), {"f": other.encode()}.get).files["f"]
    except PatchError:
        return
    assert result is not None
    added = [part[1:] for part in text.split("\n")[2:] if part.startswith("+")]
    assert all(part in result.decode().split("\n") for part in added)
