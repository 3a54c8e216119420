"""What the patches of FlashQLA do, without its source: each file is what its patches themselves show of it.

They show all of the import path and of the loading of the extension. torch and the Hopper modules are stand-ins here;
the genuine ones are for tests/patches/test_flash_qla.py.
"""

from __future__ import annotations

import importlib
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from unidiff import PatchSet

from gpufleet.patches import read_series
from gpufleet.patching import apply

SERIES = read_series(Path(__file__).parents[2] / "files" / "patches" / "flash-qla-3ab27d7")
OPS = "flash_qla/ops/gated_delta_rule"
LEGACY = "flash_qla.ops.gated_delta_rule.legacy.sm_legacy"
HOPPER = ["chunk_gated_delta_rule", "chunk_gated_delta_rule_bwd", "chunk_gated_delta_rule_fwd"]


def shown() -> dict[str, bytes]:
    """The files as they were published, as far as the series shows them: a line that it does not show is empty.

    Each patch shows lines as they are before it; a line of an earlier patch's making is not one of the published file.
    """
    published: dict[str, dict[int, str]] = {}
    origin: dict[str, list[int | None]] = {}  # of each line now: its number when published, None for an added one
    for patch in SERIES.patches:
        for change in PatchSet(patch.text):
            lines = published.setdefault(change.path, {})
            now = origin.setdefault(change.path, list(range(1000)))
            after: list[int | None] = []
            done = 0
            for hunk in change:
                after += now[done : hunk.source_start - 1]
                done = hunk.source_start - 1
                for line in hunk:
                    if line.is_added:
                        after.append(None)
                        continue
                    if (number := now[done]) is not None:
                        assert lines.setdefault(number, line.value) == line.value
                    if line.is_context:
                        after.append(number)
                    done += 1
            origin[change.path] = after + now[done:]
    return {
        path: "".join(lines.get(number, "\n") for number in range(max(lines) + 1)).encode()
        for path, lines in published.items()
    }


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The patched package on sys.path, with a `torch` of one card of compute capability 7.5; nothing is imported."""
    files = shown()
    done = apply(SERIES, files.get)
    assert done.moved == []
    for path, content in done.files.items():
        assert content is not None
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content.removesuffix(b"def _check_inputs(\n"))  # of which they show no more
    (tmp_path / "flash_qla/ops/__init__.py").write_text("from .gated_delta_rule import chunk_gated_delta_rule\n")
    (tmp_path / OPS / "legacy/__init__.py").write_text("from .sm_legacy import prebuild\n")
    hopper(tmp_path, "raise ValueError('FlashQLA now support sm90 only.')")
    modules = {name: ModuleType(name) for name in ("torch", "torch.cuda", "torch.utils", "torch.utils.cpp_extension")}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    modules["torch"].cuda = modules["torch.cuda"]  # type: ignore[attr-defined]
    modules["torch.utils.cpp_extension"].load = None  # type: ignore[attr-defined]
    card(monkeypatch, (7, 5))
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [it for it in sys.modules if it.startswith("flash_qla")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)
    return tmp_path


def hopper(package: Path, text: str) -> None:
    """What the module of the Hopper kernels is."""
    (package / OPS / "chunk.py").write_text(text + "\n")


def card(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int] | None) -> None:
    cuda = sys.modules["torch.cuda"]
    monkeypatch.setattr(cuda, "is_available", lambda: capability is not None, raising=False)
    monkeypatch.setattr(cuda, "get_device_capability", lambda _device=0: capability, raising=False)


def imported(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    for known in [it for it in sys.modules if it.startswith("flash_qla")]:
        monkeypatch.delitem(sys.modules, known)
    importlib.invalidate_caches()
    return importlib.import_module(name)


def compiler(
    monkeypatch: pytest.MonkeyPatch, legacy: Any, during: Callable[[Path], object] = lambda _: None, suffix: str = ""
) -> list[dict[str, Any]]:
    """torch's `load`: leaves a file in the folder it is to build in, and notes what it was asked for."""
    calls: list[dict[str, Any]] = []

    def load(**asked: Any) -> str:
        calls.append(asked)
        if asked["build_directory"]:
            folder = Path(asked["build_directory"])
            during(folder)
            (folder / f"{asked['name']}{suffix}.so").write_text("compiled")
        return "the extension"

    monkeypatch.setattr(legacy, "load", load)
    return calls


@pytest.mark.parametrize("capability", [(7, 0), (7, 5), (8, 9), None])
def test_an_older_card_or_none(
    package: Path, monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int] | None
) -> None:
    card(monkeypatch, capability)
    top = imported("flash_qla", monkeypatch)
    assert [getattr(top, name) for name in HOPPER] == [None] * 3
    assert callable(importlib.import_module(LEGACY).prebuild)


@pytest.mark.parametrize(
    ("capability", "raised", "error"),
    [
        ((9, 0), "ValueError('a fault of its own')", ValueError),
        ((10, 0), "ValueError('FlashQLA now support sm90 only.')", ValueError),
        ((7, 5), "ImportError('no tilelang')", ImportError),
        ((7, 5), "RuntimeError('broken')", RuntimeError),
        (None, "ImportError('no tilelang')", ImportError),
    ],
)
def test_any_other_error_still_raises(
    package: Path,
    monkeypatch: pytest.MonkeyPatch,
    capability: tuple[int, int] | None,
    raised: str,
    error: type[Exception],
) -> None:
    card(monkeypatch, capability)
    hopper(package, f"raise {raised}")
    for name in ("flash_qla", LEGACY):
        with pytest.raises(error):
            imported(name, monkeypatch)


def test_on_hopper_its_kernels_are_there(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card(monkeypatch, (9, 0))
    hopper(package, "\n".join(f"{name} = '{name}'" for name in HOPPER))
    top = imported("flash_qla", monkeypatch)
    assert [getattr(top, name) for name in HOPPER] == HOPPER


@pytest.mark.parametrize("value", [None, "", " "])
def test_architectures_must_be_said(package: Path, monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    if value is not None:
        monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", value)
    legacy = imported(LEGACY, monkeypatch)
    calls = compiler(monkeypatch, legacy)
    for function in (legacy._load_ext, legacy.prebuild):
        with pytest.raises(RuntimeError, match="TORCH_CUDA_ARCH_LIST is not set: set it to the compute capability"):
            function()
    assert calls == []


def test_compiled_at_the_first_use_for_what_was_said(
    package: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "7.0;7.5")
    legacy = imported(LEGACY, monkeypatch)
    calls = compiler(monkeypatch, legacy)
    assert [legacy._load_ext(), legacy._load_ext()] == ["the extension"] * 2
    (asked,) = calls
    assert asked["build_directory"] is None, "in TORCH_EXTENSIONS_DIR"
    assert (asked["extra_cuda_cflags"], asked["extra_cflags"]) == (["-O3"], ["-O3"])
    assert [Path(it).relative_to(package).as_posix() for it in asked["sources"]] == [
        f"{OPS}/legacy/csrc/gdn_forward.cu"
    ]
    place = package / OPS / "legacy/prebuilt/sm75/flash_qla_legacy_gdn.so"
    assert caplog.messages == [f"FlashQLA legacy: no {place}, compiling for 7.0;7.5, a minute or two."]
    card(monkeypatch, None)
    monkeypatch.setattr(legacy, "_EXT", None)
    with pytest.raises(RuntimeError, match="requires CUDA"):
        legacy._load_ext()


def test_prebuilt_in_one_step(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a card; while it is compiled nothing is under the final name, and after it nothing else is left."""
    card(monkeypatch, None)
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "7.5")
    legacy = imported(LEGACY, monkeypatch)
    folder = package / OPS / "legacy/prebuilt/sm75"
    seen: list[list[str]] = []
    compiler(monkeypatch, legacy, lambda _: seen.append([it.name for it in folder.iterdir() if it.suffix == ".so"]))
    assert legacy.prebuild() == folder / "flash_qla_legacy_gdn.so"
    assert (folder / "flash_qla_legacy_gdn.so").read_text() == "compiled"
    assert seen == [[]] and [it.name for it in folder.iterdir()] == ["flash_qla_legacy_gdn.so"]


def test_a_failing_compiler_leaves_what_was_there(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "7.5")
    legacy = imported(LEGACY, monkeypatch)
    compiler(monkeypatch, legacy)
    place = legacy.prebuild()
    place.write_text("made before")

    def fail(folder: Path) -> None:
        raise RuntimeError(f"ninja failed in {folder}")

    compiler(monkeypatch, legacy, fail)
    with pytest.raises(RuntimeError, match="ninja failed"):
        legacy.prebuild()
    assert [(it.name, it.read_text()) for it in place.parent.iterdir()] == [(place.name, "made before")]


@pytest.mark.parametrize("value", ["7.0;7.5", "7.5+PTX", "native", "75", "9.0a"])
def test_prebuild_is_for_one_architecture(package: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", value)
    legacy = imported(LEGACY, monkeypatch)
    calls = compiler(monkeypatch, legacy)
    with pytest.raises(ValueError, match="one architecture"):
        legacy.prebuild()
    assert calls == [] and not (package / OPS / "legacy/prebuilt").exists()


def test_a_second_build_in_a_process_is_refused(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch then calls the extension another name, by which it would not load."""
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "7.5")
    legacy = imported(LEGACY, monkeypatch)
    compiler(monkeypatch, legacy, suffix="_v1")
    with pytest.raises(RuntimeError, match="has built the extension before"):
        legacy.prebuild()
    assert list((package / OPS / "legacy/prebuilt/sm75").iterdir()) == []


def test_the_prebuilt_one_of_the_card_is_taken(
    package: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It needs no TORCH_CUDA_ARCH_LIST; one of another card is not taken."""
    caplog.set_level(logging.INFO)
    legacy = imported(LEGACY, monkeypatch)
    calls = compiler(monkeypatch, legacy)
    loaded: list[Path] = []
    monkeypatch.setattr(legacy, "_load_prebuilt", loaded.append)
    for arch in ("75", "86"):
        place = legacy._prebuilt(arch)
        place.parent.mkdir(parents=True)
        place.touch()
    legacy._load_ext()
    place = package / OPS / "legacy/prebuilt/sm75/flash_qla_legacy_gdn.so"
    assert loaded == [place] and calls == []
    assert caplog.messages == [f"FlashQLA legacy: loading {place}."]
    card(monkeypatch, (7, 0))
    with pytest.raises(RuntimeError, match="TORCH_CUDA_ARCH_LIST is not set"):
        legacy._load_ext()


def test_a_damaged_prebuilt_one_is_an_error(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "7.5")
    legacy = imported(LEGACY, monkeypatch)
    calls = compiler(monkeypatch, legacy)
    place = legacy._prebuilt("75")
    place.parent.mkdir(parents=True)
    place.write_bytes(b"\x7fELF")
    with pytest.raises(ImportError, match=r"sm75/flash_qla_legacy_gdn.so does not load .* Run prebuild\(\) again"):
        legacy._load_ext()
    assert calls == []


def test_its_line_is_seen_where_logging_is_not_set_up(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM sets up its own loggers only."""
    source = (package / OPS / "legacy/sm_legacy.py").read_text()
    (package / "torch.py").touch()
    program = source.replace("from torch.utils.cpp_extension import load", "") + "\n_say('a line of %s', 'it')\n"
    done = subprocess.run([sys.executable, "-c", program], cwd=package, capture_output=True, text=True, check=True)
    assert done.stderr == "a line of it\n"
