"""What is built from source: named by all that goes into it, with a version and variables of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpufleet import catalogue, paths
from gpufleet.building import Building, capability
from gpufleet.errors import ConfigError
from gpufleet.runtime import Runtime, runtime_of
from gpufleet.schema import read
from gpufleet.stacks import Stack
from gpufleet.wheelhouse.built import needed
from gpufleet.wheelhouse.items import FromIndex, FromUrl
from gpufleet.wheelhouse.lock import parse

PATCH = "--- a/setup.py\n+++ b/setup.py\n@@ -1 +1 @@\n-a\n+b\n"
BUILD: dict[str, Any] = {
    "name": "tiny", "version": "1.0", "filename": "tiny-1.0.tar.gz", "sha256": "a" * 64, "patches": "tiny",
    "lock": "tiny-build", "env": {"TINY_DEVICE": "cuda"},
    "fetches": [{"git": "https://git.example/owner/cutlass.git", "at": "v4.4.2"}],
}  # fmt: skip
PAGE: dict[str, Any] = {
    "schema": 1, "name": "tiny-source", "title": "tiny", "engine": "vllm", "python": ["3.12", "3.11"],
    "arch": ["sm75", "sm80"], "from_source": True,
}  # fmt: skip
CARD = {"compute_capability": [7, 5]}


def page(files: Path, build: dict[str, Any] | None = None, **other: Any) -> Stack:
    """A stack whose patches and locks are in `files`."""
    data = {**PAGE, "build": {**BUILD, **(build or {})}, **other}
    return read(Stack, data, "a page").model_copy(update={"path": files / "stacks" / "tiny-source.yaml"})


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "patches" / "tiny").mkdir(parents=True)
    (tmp_path / "patches" / "tiny" / "series").write_text("0001-b.patch\n")
    (tmp_path / "patches" / "tiny" / "0001-b.patch").write_text(PATCH)
    (tmp_path / "locks").mkdir()
    for short in ("311", "312"):
        lock = f"wheel==1.0 \\\n    --hash=sha256:{'b' * 64}\n    # wheel-1.0-py3-none-any.whl 7\n"
        (tmp_path / "locks" / f"tiny-build-py{short}.txt").write_text(lock)
    return tmp_path


def building(stack: Stack, python: str = "3.11", toolkit: str = "13-0", archs: tuple[str, ...] = ("sm75",)) -> Building:
    found = Runtime(stack, python, toolkit, archs).building
    assert found is not None
    return found


def test_the_same_inputs_give_the_same_name_and_each_other_input_another(files: Path) -> None:
    names = [
        building(page(files)).name,
        building(page(files), toolkit="12-9").name,
        building(page(files), archs=("sm75", "sm80")).name,
        building(page(files), python="3.12").name,
        building(page(files, {"sha256": "c" * 64})).name,
        building(page(files, {"env": {}})).name,
        building(page(files, {"patches": None})).name,
    ]
    (files / "locks" / "tiny-build-py311.txt").write_text("")
    names.append(building(page(files)).name)
    assert len(set(names)) == len(names)
    assert all(name.startswith("tiny-1.0-") for name in names)
    again = building(page(files)).name
    assert again == names[-1]
    (files / "patches" / "tiny" / "0001-b.patch").write_text(PATCH.replace("+b", "+c"))
    assert building(page(files)).name != again


def test_how_many_compilers_run_does_not_change_what_comes_out(files: Path) -> None:
    many = building(page(files, {"env": {"TINY_DEVICE": "cuda", "MAX_JOBS": "2"}}))
    assert many.name == building(page(files)).name
    assert many.environment(None)["MAX_JOBS"] == "2"


def test_a_runtime_is_named_by_what_is_built_for_it(files: Path) -> None:
    stack = page(files)
    facts = {"python": {"version": "3.11.2"}, "gpus": [CARD]}
    runtime = runtime_of(stack, facts, "13-0")
    assert (runtime.toolkit, runtime.archs) == ("13-0", ("sm75",))
    others = [Runtime(stack, "3.11", "12-9", ("sm75",)), Runtime(stack, "3.11", "13-0", ("sm75", "sm80"))]
    assert len({runtime.name, *(other.name for other in others)}) == 3
    (files / "patches" / "tiny" / "0001-b.patch").write_text(PATCH.replace("+b", "+c"))
    assert Runtime(stack, "3.11", "13-0", ("sm75",)).name != runtime.name
    assert Runtime(stack, "3.11", None).name  # a box without a toolkit is planned, and refused later


def test_the_version_carries_the_digest_of_the_series(files: Path) -> None:
    made = building(page(files))
    assert made.version == f"1.0+gpufleet.{made.series.digest[:8]}"
    assert building(page(files, {"version": "1.0+cu130"})).version == f"1.0+cu130.gpufleet.{made.series.digest[:8]}"


def test_the_variables_of_a_build(files: Path) -> None:
    made = building(page(files), archs=("sm75", "sm80"))
    assert made.environment(None) == {
        "CUDA_HOME": "/usr/local/cuda-13.0",
        "CUDACXX": "/usr/local/cuda-13.0/bin/nvcc",
        "LD_LIBRARY_PATH": "/usr/local/cuda-13.0/lib64",
        "TORCH_CUDA_ARCH_LIST": "7.5;8.0",
        "NVCC_THREADS": "1",
        "SETUPTOOLS_SCM_PRETEND_VERSION": made.version,
        "SOURCE_DATE_EPOCH": "315619200",
        "TINY_DEVICE": "cuda",
    }


def test_git_asks_the_mirror_for_what_the_page_names(files: Path) -> None:
    env = building(page(files)).environment("http://192.0.2.5/git/{path}.git")
    assert env["GIT_CONFIG_COUNT"] == "1"
    assert env["GIT_CONFIG_KEY_0"] == "url.http://192.0.2.5/git/owner/cutlass.git.insteadOf"
    assert env["GIT_CONFIG_VALUE_0"] == "https://git.example/owner/cutlass.git"


def test_a_mirror_that_is_a_folder_is_refused_where_a_box_would_ask_it(files: Path) -> None:
    made = building(page(files))
    with pytest.raises(
        ConfigError, match=r"file:///srv/git/\{path\} is a folder of the controller, but tiny-source is"
    ):
        made.environment("file:///srv/git/{path}")
    fetches_nothing = replace(made, build=page(files, {"fetches": []}).build)
    assert "GIT_CONFIG_COUNT" not in fetches_nothing.environment("file:///srv/git/{path}")


@pytest.mark.parametrize(("arch", "said"), [("sm75", "7.5"), ("sm120", "12.0"), ("sm103", "10.3")])
def test_architectures_as_torch_writes_them(arch: str, said: str) -> None:
    assert capability(arch) == said


def test_what_a_build_needs(files: Path) -> None:
    stack = page(files, uv={"version": "0.13.9", "sha256": "d" * 64}, lock="tiny")
    archive, wheels = needed(building(stack))
    assert (archive.filename, archive.origin) == ("tiny-1.0.tar.gz", FromIndex("tiny", "1.0"))
    assert [item.sha256[0] for item in wheels] == ["d", "b"]
    elsewhere, _ = needed(replace(building(stack), build=page(files, {"url": "https://a.example/t.tar.gz"}).build))
    assert elsewhere.origin == FromUrl("https://a.example/t.tar.gz")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"from_source": False}, "`from_source: true` and `build` go together"),
        (
            {"wheels": [{"name": "tiny", "version": "1.0", "filename": "tiny-1.0-py3-no-any.whl", "sha256": "e" * 64}]},
            "tiny is both in `wheels` and built",
        ),
    ],
)  # fmt: skip
def test_a_page_that_contradicts_itself_is_refused(files: Path, other: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        page(files, **other)


def shipped() -> Stack:
    return catalogue.load(Stack, "stack", paths.stack_folders())["vllm-0.27.1-sm75-source"]


def test_the_shipped_page_builds_what_the_published_wheel_is() -> None:
    """The same release, patches and cards as the stack with the published wheel; only where it comes from differs."""
    stack = shipped()
    other = catalogue.load(Stack, "stack", paths.stack_folders())["vllm-0.27.1-sm75"]
    (wheel,) = other.wheels
    assert stack.build is not None
    assert (stack.build.name, stack.build.version, stack.build.patches) == (wheel.name, wheel.version, wheel.patches)
    for key in ("arch", "python", "cuda_toolkit", "versions", "provides", "env", "args", "sources", "compile", "lock"):
        assert getattr(stack, key) == getattr(other, key), key
    assert set(other.verify) <= set(stack.verify)
    assert set(stack.apt) - set(other.apt) == {"git"}  # for what the build clones
    assert stack.default_for == []


@pytest.mark.parametrize("python", shipped().python)
def test_the_shipped_build_lock_has_the_pins_of_the_reference_box(python: str) -> None:
    stack = shipped()
    path = stack.build_lock_path(python)
    assert path is not None
    pins = {pin.name: pin.version for pin in parse(path.read_text(), path.name)}
    assert pins["torch"] == "2.13.0"
    assert pins["numpy"] == "2.3.5" or python == "3.10"  # which 2.3.5 has no build for
    assert 77 <= int(pins["setuptools"].split(".")[0]) < 81
    assert {"setuptools-scm", "setuptools-rust", "packaging", "cmake", "ninja", "wheel", "jinja2"} <= set(pins)
    run = {pin.name: pin.version for pin in parse(stack.lock_text(python), "the lock")}
    differing = {name for name in set(run) & set(pins) if run[name] != pins[name]}
    assert differing == set()  # what is built against one torch and runs with another does not load
