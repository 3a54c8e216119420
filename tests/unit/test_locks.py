"""Locks: how they are read and written, and that those that come along are whole and current."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from gpufleet import catalogue, paths
from gpufleet.errors import ConfigError
from gpufleet.stacks import Stack
from gpufleet.wheelhouse import lock, lock_check, lock_input, needs
from gpufleet.wheelhouse.lock import Lock, Pin
from gpufleet.wheelhouse.lock_target import Target, targets
from gpufleet.wheelhouse.tags import best, ranked

A, B, C = (letter * 64 for letter in "abc")
TORCH = Pin("torch", "2.13.0", A, "torch-2.13.0-cp312-cp312-manylinux_2_28_x86_64.whl", 526605292, ("cuda-toolkit",))
CUDA = Pin("cuda-toolkit", "13.0.3.0", B, "cuda_toolkit-13.0.3.0-py3-none-any.whl", 2000)
NUMPY = Pin("numpy", "2.3.5", C, "numpy-2.3.5-cp312-cp312-manylinux_2_27_x86_64.whl", 100)


def pin(name: str, version: str = "1", tags: str = "py3-none-any") -> Pin:
    return Pin(name, version, C, f"{name.replace('-', '_')}-{version}-{tags}.whl", 1)


ENGINE = {"engine": ("1.0", ("torch==2.13.0", "numpy<3,>=2"))}
INPUT = """\
# gpufleet: platform x86_64-manylinux_2_35
# gpufleet: exclude-newer 2026-08-20
# gpufleet: repacked engine
# gpufleet: drop torchaudio

engine==1.0
"""
PAGE = {
    "schema": 1, "name": "small", "title": "small", "engine": "vllm", "python": ["3.12"], "arch": ["sm75"],
    "versions": {"torch": "2.13.0+cu130"}, "lock": "small", "uv": {"version": "0.13.9", "sha256": A},
    "wheels": [{"name": "engine", "version": "1.0", "filename": "engine-1.0-py3-none-any.whl", "sha256": A,
                "drop_requires": ["torchaudio"]}],
}  # fmt: skip
LINES = f"""\
numpy==2.3.5 \\
    --hash=sha256:{C}
    # numpy-2.3.5-cp312-cp312-manylinux_2_27_x86_64.whl 100
"""


def small(files: Path, written: str = INPUT, **other: object) -> Stack:
    """A stack in a folder of its own, with the input of its lock."""
    for folder in ("stacks", "locks"):
        (files / folder).mkdir(parents=True, exist_ok=True)
    (files / "stacks" / "small.yaml").write_text(yaml.safe_dump({**PAGE, **other}))
    (files / "locks" / "small.in").write_text(written)
    return catalogue.load(Stack, "stack", [files / "stacks"])["small"]


def put(stack: Stack, *pins: Pin, repacked: dict[str, tuple[str, tuple[str, ...]]] | None = None) -> Target:
    """Write the stack's lock as if it was made from what is there."""
    (target,) = targets(stack)
    made = Lock(list(pins), target.digest(target.input()), ENGINE if repacked is None else repacked)
    target.path("3.12").write_text(lock.render("A lock", made))
    return target


def test_what_is_written_is_read_again() -> None:
    made = Lock([CUDA, NUMPY, TORCH], "0123456789abcdef", ENGINE)
    assert lock.read(lock.render("A lock", made), "a.txt") == made


def test_pip_reads_it_too(tmp_path: Path) -> None:
    from pip._internal.network.session import PipSession
    from pip._internal.req import parse_requirements

    path = tmp_path / "lock.txt"
    path.write_text(lock.render("A lock", Lock([TORCH], "x", ENGINE)))
    (found,) = parse_requirements(str(path), session=PipSession())
    assert (found.requirement.strip(), found.options) == ("torch==2.13.0", {"hashes": {"sha256": [A]}})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("numpy==2.3.5\n    # numpy-2.3.5-py3-none-any.whl 1\n", "numpy==2.3.5 has no hash"),
        (LINES.replace("    # numpy", f"    --hash=sha256:{B}\n    # numpy"), "has 2 hashes, and needs exactly one"),
        (LINES.rpartition("    #")[0], "no comment with its wheel's name and size"),
        (LINES + "    # numpy-2.3.5-py3-none-any.whl 7\n", "two wheels"),
        ("--index-url http://x\n", "no option can be in a lock"),
        (LINES.replace("2.3.5 \\", ">=2 \\"), "is no exact version"),
        (LINES.replace("==2.3.5 \\", "==2.3.6 \\"), "is no wheel of numpy==2.3.6"),
        (LINES.replace(" \\", " ; python_version > '3' \\"), "cannot follow it"),
        (LINES.replace(C, "abc"), "is no sha256"),
        (LINES + LINES, "numpy is there twice"),
        (LINES + "    # needs: ===\n", "`===` is no requirement"),
    ],
)
def test_a_line_that_is_not_so_is_refused_with_its_file_and_what_to_do(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=r"^a\.txt: .*make the lock again") as error:
        lock.parse(text, "a.txt")
    assert said in str(error.value)


def test_the_line_is_named() -> None:
    with pytest.raises(ConfigError, match=r"a\.txt: line 5: torch==1 has no hash"):
        lock.parse(f"{LINES}\ntorch==1\n", "a.txt")


@pytest.mark.parametrize(
    ("python", "names", "chosen"),
    [
        ("3.12", ["a-1-py3-none-any.whl", "a-1-cp312-cp312-manylinux_2_28_x86_64.whl"], 1),
        ("3.12", ["a-1-cp38-abi3-manylinux_2_28_x86_64.whl", "a-1-cp312-abi3-manylinux_2_17_x86_64.whl"], 1),
        ("3.12", ["a-1-cp312-cp312-manylinux_2_28_x86_64.whl", "a-1-cp312-cp312-manylinux_2_36_x86_64.whl"], 0),
        ("3.12", ["a-1-1-cp312-cp312-manylinux_2_28_x86_64.whl", "a-1-3-cp312-cp312-manylinux_2_28_x86_64.whl"], 1),
        ("3.12", ["a-1-cp312-cp312-manylinux2014_x86_64.whl", "a-1-cp312-cp312-linux_x86_64.whl"], 0),
        ("3.11", ["a-1-cp312-cp312-manylinux_2_28_x86_64.whl", "a-1-cp311-cp311-manylinux_2_28_aarch64.whl"], None),
        ("3.12", ["a-1-cp312-cp312t-manylinux_2_28_x86_64.whl"], None),
    ],
)
def test_the_best_wheel_for_a_python_and_a_glibc(python: str, names: list[str], chosen: int | None) -> None:
    assert best(names, ranked(python, 35)) == (None if chosen is None else names[chosen])


def test_what_applies_depends_on_python_platform_and_extras() -> None:
    metadata = """\
Metadata-Version: 2.4
Name: a
Requires-Dist: six>=1.16.0; python_version > "3.11"
Requires-Dist: winreg; sys_platform == "win32"
Requires-Dist: pillow<13,>=10; extra == "image"
Requires-Dist: plain
"""
    found = {"a": needs.requirements(metadata), "pillow": []}
    asked = needs.reached([Requirement("a")], found, "3.11")
    assert {name: list(map(str, its)) for name, its in asked.items()} == {"a": ["plain"]}
    asked = needs.reached([Requirement("a"), Requirement("a[image]")], found, "3.12")
    assert list(map(str, asked["a"])) == ["six>=1.16.0", "pillow<13,>=10", "plain"]
    assert asked["pillow"] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# gpufleet: platfrom x\n", "unknown directive 'platfrom'; did you mean 'platform'"),
        (INPUT.replace("2026-08-20", "yesterday"), "'yesterday' is no day"),
        (INPUT.replace("x86_64-manylinux_2_35", "linux"), "'linux' is none such as"),
        (INPUT + INPUT, "needs one line `# gpufleet: platform …`, and has 2"),
        (INPUT + "engine=1\n", "line 7: "),
    ],
)
def test_a_wrong_input_is_refused_by_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=r"^small\.in: ") as error:
        lock_input.parse(text, "small.in")
    assert said in str(error.value)


def test_a_lock_in_order_has_no_problems(tmp_path: Path) -> None:
    stack = small(tmp_path)
    put(stack, TORCH, CUDA, NUMPY)
    assert lock_check.problems(stack) == []


@pytest.mark.parametrize(
    ("pins", "said"),
    [
        ((TORCH, CUDA), "engine needs numpy<3,>=2, which is not locked"),
        ((CUDA, NUMPY), "has no torch, but the page says versions.torch: 2.13.0+cu130"),
        ((TORCH, CUDA, pin("numpy", "1.9")), "needs numpy<3,>=2, and 1.9 is locked"),
        ((TORCH, CUDA, NUMPY, pin("more")), "has more, which nothing asks for"),
        ((TORCH, CUDA, NUMPY, pin("torchaudio")), "torchaudio is locked, but is dropped"),
        ((TORCH, CUDA, NUMPY, pin("engine", "1.0")), "engine is locked, but is made"),
        ((TORCH, pin("cuda-toolkit", "12.8.1"), NUMPY), "has torch 2.13.0+cu128, but the page says"),
        ((TORCH, CUDA, pin("numpy", "2.3.5", "cp311-cp311-manylinux_2_27_x86_64")), "is no wheel for Python 3.12 with"),
    ],
)
def test_a_lock_that_is_not_closed_or_not_as_the_page_says(tmp_path: Path, pins: tuple[Pin, ...], said: str) -> None:
    stack = small(tmp_path)
    put(stack, *pins)
    found = lock_check.problems(stack)
    assert any(said in line for line in found), found
    assert all(line.startswith("locks/small-py312.txt: ") and "gpufleet stacks lock small" in line for line in found)


@pytest.mark.parametrize(
    "change",
    [
        {"written": INPUT + "more==1\n"},
        {"written": INPUT.replace("2026-08-20", "2026-08-21")},
        {"wheels": [{**PAGE["wheels"][0], "drop_requires": []}]},  # type: ignore[index]
        {"wheels": [{**PAGE["wheels"][0], "replace_requires": ["numpy==2.3.5"]}]},  # type: ignore[index]
    ],
)
def test_a_lock_of_another_input_or_page_is_out_of_date(tmp_path: Path, change: dict[str, object]) -> None:
    put(small(tmp_path), TORCH, CUDA, NUMPY)
    found = lock_check.problems(small(tmp_path, **change))  # type: ignore[arg-type]
    assert any("is not made from the present small.in and stacks/small.yaml" in line for line in found)


def test_comments_and_order_of_the_input_do_not_matter(tmp_path: Path) -> None:
    put(small(tmp_path), TORCH, CUDA, NUMPY)
    assert lock_check.problems(small(tmp_path, "# another comment\n" + INPUT)) == []


def test_the_page_and_the_input_name_the_same_repacked_wheels(tmp_path: Path) -> None:
    stack = small(tmp_path, wheels=[])
    assert lock_check.problems(stack) == [
        "locks/small.in: repacked or unread are engine, but stacks/small.yaml makes none; make them the same"
    ]


def test_a_repacked_wheel_asks_for_what_the_page_leaves_it(tmp_path: Path) -> None:
    wheel = {**PAGE["wheels"][0], "replace_requires": ["numpy==2.3.5"]}  # type: ignore[index]
    (target,) = targets(small(tmp_path, wheels=[wheel]))
    asked = [Requirement(one) for one in ("torchaudio==2", "numpy<2", "pillow")]
    assert list(map(str, target.remaining("engine", asked))) == ["numpy==2.3.5", "pillow"]
    assert target.remaining("other", asked) == asked


def test_a_lock_that_is_not_there_is_said_with_the_command(tmp_path: Path) -> None:
    (line,) = lock_check.problems(small(tmp_path))
    assert line == (
        "locks/small-py312.txt: No such file or directory; "
        "make it with `gpufleet stacks lock small --python 3.12`"
    )  # fmt: skip


@pytest.mark.parametrize("name", sorted(catalogue.load(Stack, "stack", paths.stack_folders())))
def test_the_locks_that_come_along_are_in_order(name: str) -> None:
    stack = catalogue.load(Stack, "stack", paths.stack_folders())[name]
    assert lock_check.problems(stack) == []
    assert stack.installable


def test_the_toolchain_of_the_reference_boxes_is_locked() -> None:
    stacks = catalogue.load(Stack, "stack", paths.stack_folders())
    for name, wanted in {
        "vllm-0.27.1-sm75": {"torch": "2.13.0", "transformers": "5.15.1", "triton": "3.7.1"},
        "vllm-0.27.1": {"torch": "2.13.0", "transformers": "5.15.1", "triton": "3.7.1", "vllm": "0.27.1"},
        "vllm-0.24.0-sm75": {"torch": "2.11.0", "transformers": "5.12.1", "triton": "3.6.0", "numpy": "2.3.5"},
    }.items():
        for python in stacks[name].python:
            pins = lock.by_name(lock.parse(stacks[name].lock_text(python), name))
            assert {key: pins[key].version for key in wanted} == wanted
            assert pins["nvidia-cuda-nvcc"].version.startswith("13.0.")
            assert 77 <= int(pins["setuptools"].version.split(".")[0]) < 81
