"""An MTP head replaced, in the real engine: without it no draft is right; with it each is; and the way back."""

from __future__ import annotations

import json
import os
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import model, state
from tests.command import owners_folder
from tests.lab import mixture
from tests.lab.support import Done, SmallLab, deploy, small_lab

pytestmark = [pytest.mark.lab, pytest.mark.large]

NAME = "lab-mixture"
MODELS = "/srv/models"
HEAD = {"source": {"path": f"{MODELS}/head"}}
PLACED = f"/opt/gpufleet/models/{NAME}"
INDEX, MTP = "model.safetensors.index.json", "model-mtp.safetensors"


@pytest.fixture(scope="module")
def lab() -> Iterator[SmallLab]:
    with small_lab("head", 96, ["cpu-only"]) as found:
        yield found


@pytest.fixture(scope="module")
def folder(lab: SmallLab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An owner's folder; the checkpoint and the head are on the box, where their owner has put them."""
    there = lab.where.boxes / "lab-1" / "root" / MODELS.strip("/")
    mixture.build(there / "own", there / "head" / MTP)
    lab.sh("lab-1", f"chown -R root: {MODELS} && chmod -R u=rwX,go=rX {MODELS}")
    path = tmp_path_factory.mktemp("home")
    return owners_folder(path, lab.inventory({"lab-1": {"serve": [NAME], "host": {}}}, own_models=True))


def serve(folder: Path, head: dict[str, Any] | None, accepted: bool = True) -> Done:
    """Deploy the model, its head replaced or not; the gate wants a draft to be right, or not."""
    page = yaml.safe_load(model.catalogue({"name": NAME, "revision": "r1", "files": {}}, "http://unused.example"))
    page |= {"source": {"path": f"{MODELS}/own"}, "title": "a mixture of experts with an MTP head"}
    page |= {"mtp_head": head} if head else {}
    page["gate"]["accepted"] = accepted
    (folder / "files" / "models").mkdir(parents=True, exist_ok=True)
    (folder / "files" / "models" / f"{NAME}.yaml").write_text(yaml.safe_dump(page))
    return deploy(folder)


def ask(lab: SmallLab) -> tuple[str, float, float]:
    """An answer, and how many drafts were made and accepted while it was written."""
    url = f"http://{state.load(lab.where).box('lab-1').address}:8000"
    body = {"model": NAME, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 30, "temperature": 0}
    before = counters(url)
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        said = str(json.load(answer)["choices"][0]["message"]["content"])
    drafts, accepted = (after - was for after, was in zip(counters(url), before, strict=True))
    return said, drafts, accepted


def counters(url: str) -> tuple[float, float]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    names = ("vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_accepted_tokens_total")
    drafts, accepted = (sum(float(line.split()[-1]) for line in lines if line.startswith(name)) for name in names)
    return drafts, accepted


def everything(lab: SmallLab, where: str, times: str = "%T@ %C@") -> str:
    return lab.sh("lab-1", f"find {where} -printf '%p %l %i %s {times}\\n' | sort")


def test_its_own_head_is_of_no_use(lab: SmallLab, folder: Path) -> None:
    done = serve(folder, None)
    assert done.code == 1, done.output
    assert "not one token was accepted" in done.problem("lab-1")


def test_with_another_head_its_drafts_are_right(lab: SmallLab, folder: Path) -> None:
    owners = everything(lab, MODELS, "%T@")
    done = serve(folder, HEAD)
    assert done.code == 0, done.output
    said, drafts, accepted = ask(lab)
    assert said.startswith("This tiny model was made by the lab")
    assert drafts > 5 and accepted >= drafts - 1, (drafts, accepted)
    assert everything(lab, MODELS, "%T@") == owners, "the owner's folders were written into"
    placed = lab.where.boxes / "lab-1" / "root" / PLACED.strip("/")
    (directory,) = [path for path in placed.iterdir() if path.name.startswith("r1+")]
    names = [name for name in json.loads((directory / INDEX).read_text())["weight_map"] if name.startswith("mtp.")]
    assert len(names) == 19
    original = os.readlink(directory / f"{INDEX}.original")
    assert original == f"{MODELS}/own/{INDEX}"
    assert lab.sh("lab-1", f"grep -o '\"mtp\\.' {original} | wc -l") == "785"


def test_a_second_deploy_changes_nothing(lab: SmallLab, folder: Path) -> None:
    before = everything(lab, f"{PLACED} {MODELS}")
    done = serve(folder, HEAD)
    assert done.code == 0, done.output
    assert done.state("lab-1") == "serving, nothing to do"
    assert everything(lab, f"{PLACED} {MODELS}") == before


def test_a_head_that_is_another_models_is_refused_before_anything_is_switched(lab: SmallLab, folder: Path) -> None:
    there = lab.where.boxes / "lab-1" / "root" / MODELS.strip("/")
    (there / "other").mkdir()
    shutil.copy(there / "own" / mixture.SHARD, there / "other" / MTP)
    lab.sh("lab-1", f"chmod -R u=rwX,go=rX {MODELS}/other")
    done = serve(folder, {"source": {"path": f"{MODELS}/other"}})
    assert done.code == 1, done.output
    assert f"{MODELS}/other/{MTP} is not an MTP head alone: it holds the tensor lm_head.weight" in done.problem("lab-1")
    _, drafts, accepted = ask(lab)
    assert drafts and accepted, "what served before serves still"


def test_without_the_step_the_old_model_is_served(lab: SmallLab, folder: Path) -> None:
    done = serve(folder, None, accepted=False)
    assert done.code == 0, done.output
    said, drafts, accepted = ask(lab)
    assert said.startswith("This tiny model was made by the lab")
    assert drafts > 5 and not accepted
    assert lab.sh("lab-1", f"readlink {PLACED}/r1") == f"{MODELS}/own"
