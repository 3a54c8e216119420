"""Releases: the same plan gives the same bytes; nothing a value holds gets out of its quotes."""

from __future__ import annotations

import hashlib
import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufleet import starting
from gpufleet.errors import ConfigError
from gpufleet.models import Model
from gpufleet.plan import Instance
from gpufleet.render import environment_file, release, unit_word
from tests.unit.fleets import cpu_facts, gpu_facts, model, plan, stack


def instance(**more: object) -> Instance:
    return plan(cpu_facts(), **more).instances[0]


def test_a_release_is_named_by_its_manifest_and_the_manifest_names_every_file() -> None:
    made = release(instance())
    assert made == release(instance())
    assert made.digest == hashlib.sha256(made.files["manifest.json"].encode()).hexdigest()[:16]
    digests = json.loads(made.files["manifest.json"])["files"]
    assert json.loads(made.files["manifest.json"])["links"] == made.links
    assert made.links["model"] == "/opt/gpufleet/models/tiny/r1"
    assert made.links["runtime"].startswith("/opt/gpufleet/runtimes/engine-cpu-")
    assert set(digests) == set(made.files) - {"manifest.json"}
    assert all(hashlib.sha256(made.files[name].encode()).hexdigest() == digest for name, digest in digests.items())


def test_any_change_of_a_value_is_another_release() -> None:
    first = release(instance()).digest
    assert release(instance(models=[model(args={"max-model-len": 513})])).digest != first
    assert release(instance(stacks=[stack(env={"A": "b"})])).digest != first
    assert release(plan(gpu_facts()).instances[0]).digest != first


def templated(folder: Path, text: str = "{{ messages }}") -> Model:
    (folder / "mine.jinja").write_text(text)
    return model(chat_template="mine.jinja").model_copy(update={"path": folder / "tiny.yaml"})


def test_a_models_own_chat_template_is_a_file_of_the_release(tmp_path: Path) -> None:
    made = instance(models=[templated(tmp_path)])
    at = "/opt/gpufleet/instances/tiny/current/chat_template.jinja"
    assert made.args["chat-template"] == at and made.because["chat-template"] == "the model's chat_template"
    first = release(made)
    assert first.files["chat_template.jinja"] == "{{ messages }}" and at in first.files["serve.yaml"]
    assert "chat_template.jinja" in json.loads(first.files["manifest.json"])["files"]
    other = release(instance(models=[templated(tmp_path, "{{ tools }}")]))
    assert other.digest != first.digest


def test_a_chat_template_by_a_flag_is_stronger_than_the_models(tmp_path: Path) -> None:
    made = instance(models=[templated(tmp_path)], data={"serve_args": {"chat-template": "/srv/other.jinja"}})
    assert made.args["chat-template"] == "/srv/other.jinja"
    assert "chat_template.jinja" not in release(made).files
    assert "chat-template" not in instance().args


def test_a_chat_template_that_is_not_beside_the_page_is_said(tmp_path: Path) -> None:
    wanted = templated(tmp_path)
    (tmp_path / "mine.jinja").unlink()
    with pytest.raises(
        ConfigError, match=r"tiny\.yaml: chat_template: mine\.jinja cannot be read .* put the file beside"
    ):
        instance(models=[wanted])


def test_the_unit_never_runs_as_root_and_limits_its_restarts() -> None:
    unit = release(instance()).files["gpufleet-tiny.service"]
    assert "\nUser=gpufleet\n" in unit
    assert unit.index("StartLimitBurst=") < unit.index("[Service]")
    assert "=+" not in unit and "=!" not in unit
    assert 'ExecStart="/opt/gpufleet/runtimes/engine-cpu-' in unit


def test_a_start_has_the_time_it_needs_and_no_less_than_the_wait_for_memory() -> None:
    def seconds(timeout: int) -> int:
        unit = release(instance(models=[model(gate={"timeout": timeout})])).files["gpufleet-tiny.service"]
        return int(unit.split("\nTimeoutStartSec=")[1].split("\n")[0])

    assert seconds(1800) == 1800
    assert seconds(30) > starting.WAIT_SECONDS


def test_a_model_in_a_home_can_be_read_there_and_no_other_can() -> None:
    def home(path: str) -> bool:
        found = instance(models=[model(source={"path": path})])
        return "ProtectHome=read-only" in release(found).files["gpufleet-tiny.service"]

    assert home("/home/me/models/tiny")
    assert not home("/srv/models/tiny")


def test_cuda_comes_first_on_the_path_and_stubs_are_not_on_it() -> None:
    env = plan(gpu_facts()).instances[0].env
    assert env["CUDA_HOME"] == "/usr/local/cuda-13.0"
    assert env["PATH"].split(":")[1] == "/usr/local/cuda-13.0/bin"
    assert "stubs" not in env["LD_LIBRARY_PATH"]


def test_the_owners_variables_win_over_the_computed_ones() -> None:
    found = instance(data={"serve_env": {"VLLM_CACHE_ROOT": "/data/cache"}})
    assert found.env["VLLM_CACHE_ROOT"] == "/data/cache"


printable = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), max_size=40)


@given(printable)
def test_a_variable_comes_back_as_it_went_in(value: str) -> None:
    """systemd unquotes a double-quoted value as a POSIX shell does, except that it expands nothing."""
    line = environment_file({"A": value})
    assert line.count("\n") == 1
    escaped = line.removeprefix('A="').removesuffix('"\n')
    assert shlex.split(f'"{escaped}"') == [value]


@given(printable)
def test_a_word_of_a_unit_is_one_word_without_specifiers(value: str) -> None:
    word = unit_word(value)
    assert shlex.split(word.replace("%%", "%").replace("$$", "$")) == [value]
    assert word.replace("%%", "").count("%") == 0
