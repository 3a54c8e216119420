"""The reference boxes, read by the genuine parser of their vLLM: what it makes of the files that are rendered for them.

Slow (environments of several GB, made once), so behind the marker `large`; the flags themselves are compared without it
in tests/unit/test_reference_boxes.py, and 0.27.1's parser reads them on a box of the lab in tests/lab/test_main_job.py.
`python -m tests.golden.test_reference_boxes` writes the files anew; look at the difference.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml

from gpufleet.render import release
from tests.golden.environments import namespaces
from tests.unit.test_reference_boxes import REFERENCE, reference

FOLDER = Path(__file__).parent
# What only the patched engine takes: the published one refuses it, which a test shows.
PATCHED = ("reasoning-config", "default_thinking_token_budget")
ENGINES = sorted({str(reference(*case[:3]).stack.flags) for case in REFERENCE.values()})


def golden(name: str) -> Path:
    return FOLDER / f"{name.replace(' ', '-').lower()}.json"


def rendered(name: str, patched: bool = False) -> str:
    """The serve.yaml of a reference box, without what only a patched engine takes."""
    topology, model, stack, _, _ = REFERENCE[name]
    lines = yaml.safe_load(release(reference(topology, model, stack)).files["serve.yaml"])
    flag, key = PATCHED
    if flag in lines and not patched:
        lines[flag] = json.dumps({k: value for k, value in json.loads(lines[flag]).items() if k != key})
    return yaml.safe_dump(lines, sort_keys=True)


def of_engine(engine: str) -> list[str]:
    return [name for name, case in REFERENCE.items() if reference(*case[:3]).stack.flags == engine]


def read(engine: str, folder: Path) -> dict[str, Any]:
    """The namespaces of the reference boxes of one engine, by name."""
    names = of_engine(engine)
    files = [folder / f"{number}.yaml" for number in range(len(names))]
    for name, file in zip(names, files, strict=True):
        file.write_text(rendered(name), encoding="utf-8")
    return dict(zip(names, namespaces(engine, files, "--changed"), strict=True))


@pytest.mark.large
@pytest.mark.parametrize("engine", ENGINES)
def test_the_parser_makes_of_them_what_the_recipes_say(engine: str, tmp_path: Path) -> None:
    for name, found in read(engine, tmp_path).items():
        assert found == json.loads(golden(name).read_text(encoding="utf-8")), name


@pytest.mark.large
def test_a_thinking_budget_is_refused_by_the_published_engine(tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(rendered("B", patched=True), encoding="utf-8")
    with pytest.raises(AssertionError, match=PATCHED[1]):
        namespaces("vllm-0.24.0", [file])


@pytest.mark.parametrize("name", REFERENCE)
def test_a_golden_file_says_what_the_plan_says(name: str) -> None:
    """Flag by flag, in the parser's words: what differs is listed here and nowhere else."""
    topology, model, stack, _, _ = REFERENCE[name]
    args = dict(reference(topology, model, stack).args)
    found = json.loads(golden(name).read_text(encoding="utf-8"))
    args["served-model-name"] = [args["served-model-name"]]
    if "device-ids" in args:
        args["device-ids"] = [int(index) for index in args["device-ids"].split(",")]
    if "disable-uvicorn-access-log" in args:
        assert found["disable_uvicorn_access_log"] is args["disable-uvicorn-access-log"]
    flag, key = PATCHED
    if flag in args:
        args[flag] = {k: value for k, value in args[flag].items() if k != key}
    if "cudagraph_mode" in args["compilation-config"]:
        assert "PIECEWISE" in str(found["compilation_config"].pop("cudagraph_mode"))
        args["compilation-config"] = {
            k: value for k, value in args["compilation-config"].items() if k != "cudagraph_mode"
        }
    assert found == {name.replace("-", "_"): value for name, value in args.items()}


def write() -> None:
    """Write the golden files anew."""
    with TemporaryDirectory() as folder:
        for engine in ENGINES:
            for name, found in read(engine, Path(folder)).items():
                golden(name).write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
