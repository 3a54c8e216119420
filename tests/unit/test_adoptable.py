"""The verb `adoptable`: which servers it finds on a box, what it tells of them, and what never leaves the box."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufleet import masking
from hostkit import __main__ as kit
from hostkit import adoptable, adoptable_argv, adoptable_model, model_check
from hostkit.adoptable_secrets import HIDDEN, Secrets, is_secret
from hostkit.roots import Roots
from tests.unit import tiny_checkpoint
from tests.unit.adopted_boxes import SYSTEMD, UNIT, HandMade

SYSTEM = "/system.slice/vllm.service"


@pytest.fixture
def box(tmp_path: Path) -> HandMade:
    found = HandMade(tmp_path)
    found.unit("vllm.service", UNIT.format(command="/opt/v/bin/vllm serve /m", more="EnvironmentFile=/etc/vllm.env"))
    return found


def serving(box: HandMade, *flags: str, pid: int = 812, **more: Any) -> dict[str, Any]:
    """What is told of a vLLM that runs with these flags."""
    options = {"cgroup": SYSTEM, "ports": [8000], "env": SYSTEMD, **more}
    box.process(pid, ["/opt/v/bin/python3", "/opt/v/bin/vllm", "serve", *flags], **options)
    (service,) = box.look()["services"]
    return dict(service)


@pytest.mark.parametrize(
    ("words", "engine", "rest"),
    [
        (["/v/bin/python3", "/v/bin/vllm", "serve", "m", "--x"], "vllm", ["m", "--x"]),
        (["/v/bin/vllm", "serve", "m"], "vllm", ["m"]),
        (["python", "-u", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"], "vllm", ["--model", "m"]),
        (["python3.12", "-X", "dev", "-m", "vllm.entrypoints.cli.main", "serve", "m"], "vllm", ["m"]),
        (["python3", "/v/lib/vllm/entrypoints/openai/api_server.py", "--port", "1"], "vllm", ["--port", "1"]),
        (["/v/bin/python", "/v/bin/lmdeploy", "serve", "api_server", "m", "--tp", "2"], "lmdeploy", ["m", "--tp", "2"]),
        (["python", "-m", "lmdeploy", "serve", "api_server", "m"], "lmdeploy", ["m"]),
        (["/usr/bin/llama-server", "-m", "x.gguf"], "llama.cpp", ["-m", "x.gguf"]),
        (["ollama", "serve"], "ollama", []),
        (["python3", "-m", "sglang.launch_server", "--model-path", "m"], "sglang", ["--model-path", "m"]),
    ],
)
def test_a_server_is_known_by_what_starts_it(words: list[str], engine: str, rest: list[str]) -> None:
    assert adoptable_argv.server(words) == (engine, rest)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["bash", "-c", "vllm serve m"],
        ["sudo", "-u", "ai", "vllm", "serve", "m"],
        ["python3", "-c", "from multiprocessing.spawn import spawn_main"],
        ["python3", "-"],
        ["vllm", "bench", "serve"],
        ["vllm", "chat"],
        ["ollama", "run", "x"],
        ["grep", "vllm", "serve"],
        ["VLLM::EngineCore"],
    ],
)
def test_other_processes_are_no_servers(words: list[str]) -> None:
    assert adoptable_argv.server(words) is None


def test_a_service_with_its_unit_and_all_that_it_started(box: HandMade) -> None:
    box.runtime("/opt/v", vllm="0.27.1+cu130", torch="2.13.0")
    box.process(900, ["VLLM::EngineCore"], cgroup=SYSTEM, parent=812, ports=[45001])
    box.process(901, ["VLLM::Worker_TP1"], cgroup=SYSTEM, parent=900)
    box.process(77, ["/usr/sbin/sshd"], cgroup="/system.slice/ssh.service", ports=[22])
    found = serving(box, "/m", "--port", "8000")
    assert (found["engine"], found["pid"], found["pids"], found["port"]) == ("vllm", 812, [812, 900, 901], 8000)
    assert (found["unit"], found["scope"], found["enabled"]) == ("vllm.service", "system", "enabled")
    assert found["fragment"] == "/etc/systemd/system/vllm.service"
    assert found["user"] == "ai" and found["words"] == ["/m", "--port", "8000"]
    assert found["runtime"]["versions"] == {"vllm": "0.27.1+cu130", "torch": "2.13.0"}
    assert found["settings"]["Restart"] == ["always"]
    assert found["settings"]["StandardOutput"] == ["append:/var/log/vllm.log"]


def test_a_drop_in_is_over_the_unit(box: HandMade) -> None:
    drop_in = "/etc/systemd/system/vllm.service.d/own.conf"
    box.write(
        drop_in, "[Service]\nRestart=on-failure\nExecStartPre=/bin/a\nExecStartPre=\nExecStartPre=/bin/b \\\n  c\n"
    )
    box.shown[0] = box.shown[0].replace("DropInPaths=", f"DropInPaths={drop_in}")
    found = serving(box, "/m")
    assert found["settings"]["Restart"][-1] == "on-failure"
    assert found["settings"]["ExecStartPre"] == ["/bin/b …"]


def test_a_server_below_another_is_not_a_service_of_its_own(box: HandMade) -> None:
    box.process(813, ["/opt/v/bin/python3", "/opt/v/bin/vllm", "serve", "/m"], cgroup=SYSTEM, parent=812)
    assert serving(box, "/m")["pid"] == 812


def test_instances_of_gpufleet_are_left_out(box: HandMade) -> None:
    words = ["/opt/gpufleet/runtimes/x/bin/python", "/opt/gpufleet/runtimes/x/bin/vllm", "serve", "/m"]
    box.process(812, words, cgroup="/system.slice/gpufleet-qwen.service", ports=[8000])
    assert box.look() == {"services": [], "idle": [{
        "unit": "vllm.service", "engine": "vllm", "fragment": "/etc/systemd/system/vllm.service",
    }]}  # fmt: skip


def test_units_that_do_not_run_are_told_and_other_units_are_not(box: HandMade) -> None:
    box.write("/etc/systemd/system/nginx.service", "[Service]\nExecStart=/usr/sbin/nginx\n")
    box.write("/etc/systemd/system/gpufleet-a.service", "[Service]\nExecStart=/x/bin/vllm serve /m\n")
    box.write(
        "/etc/systemd/system/shell.service", '[Service]\nExecStart=/bin/bash -lc \\\n  "exec llama-server -m x"\n'
    )
    assert [item["unit"] for item in box.look()["idle"]] == ["shell.service", "vllm.service"]


@pytest.mark.parametrize(
    ("cgroup", "scope", "unit", "container"),
    [
        ("/system.slice/vllm.service", "system", "vllm.service", None),
        ("/system.slice/system-vllm.slice/vllm@a.service", "system", "vllm@a.service", None),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/llm.service", "user", "llm.service", None),
        ("/user.slice/user-1000.slice/session-3.scope", "session", None, None),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/tmux-1.scope", "session", None, None),
        ("/system.slice/docker-0123456789abcdef0123.scope", "container", None, "0123456789ab"),
        ("/docker/0123456789abcdef0123", "container", None, "0123456789ab"),
        ("/machine.slice/libpod-0123456789abcdef.scope", "container", None, "0123456789ab"),
    ],
)
def test_who_starts_it(box: HandMade, cgroup: str, scope: str, unit: str | None, container: str | None) -> None:
    found = serving(box, "/m", cgroup=cgroup)
    assert (found["scope"], found["unit"], found["container"]) == (scope, unit, container)


def test_a_unit_of_a_user_is_read_from_his_home(box: HandMade) -> None:
    box.write("/home/ai/.config/systemd/user/llm.service", "[Service]\nRestart=always\n")
    found = serving(box, "/m", cgroup="/user.slice/user-1000.slice/user@1000.service/app.slice/llm.service")
    assert found["fragment"] == "/home/ai/.config/systemd/user/llm.service"
    assert found["settings"] == {"Restart": ["always"]}


# Secrets

PLANTED = {
    "HF_TOKEN": "hf_plantedplantedplanted",
    "VLLM_API_KEY": "planted-key-1",
    "PGPASSWORD": "planted-password",
    "AWS_SECRET_ACCESS_KEY": "planted-aws",
    "HF_ENDPOINT": "https://anna:planted-login@hub.example.org",
    "MYSTERY": "planted-somewhere",
    "OPENAI_API_KEY": "planted-openai",
}


def test_no_secret_leaves_the_box(box: HandMade) -> None:
    box.write("/home/ai/serve.yaml", "api-key: planted-yaml\napi_key:\n  - planted-list\nmax-model-len: 5\n")
    flags = [
        *("/m", "--api-key", "planted-key-1", "planted-key-2", "--port", "8000", "--hf-token=planted-hf"),
        *("--additional-config", '{"api_key": "planted-json", "a": {"token": "planted-deep"}, "n": 1}'),
        *("--config", "serve.yaml", "--middleware", "x.planted-openai"),
    ]
    env = {**SYSTEMD, **PLANTED, "VLLM_NOTE": "has planted-openai in it", "OMP_NUM_THREADS": "8"}
    command = "/usr/bin/curl -u me:planted-user -H 'X-Id: planted-id' host"
    box.write("/etc/systemd/system/vllm.service", f"[Service]\nExecStartPre={command}\n")
    found = serving(box, *flags, env=env)
    text = json.dumps(found)
    assert "planted" not in text.replace("has planted-openai in it", "planted"), text
    assert found["words"][:4] == ["/m", "--api-key", HIDDEN, HIDDEN]
    assert found["words"][4:6] == ["--port", "8000"]
    assert set(PLANTED) <= set(found["env"]) and found["env"]["HF_TOKEN"] is None
    assert found["env"]["HF_ENDPOINT"] == f"https://{HIDDEN}@hub.example.org"
    assert found["env"]["OMP_NUM_THREADS"] == "8"
    assert "max-model-len: 5" in found["config"]["text"]


@given(st.text(st.characters(codec="ascii", categories=["L", "N"], include_characters="_-."), min_size=1, max_size=40))
def test_what_the_controller_would_hide_the_box_hides_too(name: str) -> None:
    for anywhere in (False, True):
        assert is_secret(name, anywhere) or not masking.is_secret(name, anywhere)


def test_the_controller_knows_the_mark_of_the_box() -> None:
    assert HIDDEN == masking.HIDDEN


@pytest.mark.parametrize("name", ["tokenizer", "eos-token", "max-num-batched-tokens", "TOKENIZERS_PARALLELISM"])
def test_words_of_tokenizers_are_no_secrets(name: str) -> None:
    assert not is_secret(name)


@given(st.lists(st.sampled_from(["--api-key", "s3cret-value", "--port", "8000", "-tp", "--x=1", "--key=s3cret-value"])))
def test_the_words_of_a_command_line_keep_their_number(words: list[str]) -> None:
    found = Secrets().words(words)
    assert len(found) == len(words)
    at = [place for place, word in enumerate(words) if word == "s3cret-value"]
    keyed = [place for place in at if _flag_before(words, place) == "--api-key"]
    assert all(found[place] == HIDDEN for place in keyed)


def _flag_before(words: list[str], place: int) -> str:
    return next((word for word in reversed(words[:place]) if word.startswith("-")), "")


# The model


def hub(root: Path, cache: str, repository: str = "owner/Model", commit: str = "a" * 40) -> str:
    folder = f"{cache}/models--{repository.replace('/', '--')}"
    place = root / folder.lstrip("/")
    tiny_checkpoint.checkpoint(place / "snapshots" / commit)
    (place / "refs").mkdir()
    (place / "refs/main").write_text(commit)
    return f"{folder}/snapshots/{commit}"


@pytest.mark.parametrize(
    ("cache", "env"),
    [
        ("/home/ai/.cache/huggingface/hub", {}),
        ("/data/hf/hub", {"HF_HOME": "/data/hf"}),
        ("/data/hub", {"HF_HUB_CACHE": "/data/hub"}),
        ("/data/xdg/huggingface/hub", {"XDG_CACHE_HOME": "/data/xdg"}),
    ],
)
def test_a_model_of_the_hub_is_found_in_its_cache(box: HandMade, cache: str, env: dict[str, str]) -> None:
    place = hub(box.root, cache)
    model = serving(box, "owner/Model", env={**SYSTEMD, **env})["model"]
    assert (model["path"], model["repository"], model["commit"]) == (place, "owner/Model", "a" * 40)
    assert model["look"]["problems"] == []


def test_a_model_in_a_folder_is_looked_at_and_not_changed(box: HandMade) -> None:
    folder = tiny_checkpoint.checkpoint(box.root / "srv/Tiny")
    before = sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir())
    model = serving(box, "--port", "8000", "--model", "Tiny", cwd="/srv")["model"]
    assert (model["path"], model["repository"]) == ("/srv/Tiny", None)
    assert model["look"]["damaged"] == [] and len(model["files"]) == len(before)
    assert sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir()) == before


def test_the_cache_of_the_hub_tells_the_sha256_of_large_files(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / ("b" * 64)).write_bytes(b"123")
    folder = tmp_path / "snapshots"
    folder.mkdir()
    (folder / "a.safetensors").symlink_to(tmp_path / "blobs" / ("b" * 64))
    (folder / "config.json").write_text("{}")
    assert adoptable_model.files(str(folder)) == {
        "a.safetensors": {"size": 3, "sha256": "b" * 64},
        "config.json": {"size": 2},
    }


def test_a_model_that_is_closed_to_services_is_told(box: HandMade, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = {"file": "config.json", "cause": "/home/ai is closed", "remedy": "chmod o+x /home/ai"}
    monkeypatch.setattr(model_check, "closed", lambda path: [problem])
    tiny_checkpoint.checkpoint(box.root / "home/ai/Tiny")
    assert serving(box, "/home/ai/Tiny")["model"]["closed"] == [problem]


# What it answers to


class Server(BaseHTTPRequestHandler):
    """An engine's list of models, for those who have the key."""

    key: str | None = None
    body = json.dumps({"data": [{"id": "medium", "root": "/m", "parent": None}, {"id": "lora", "parent": "medium"}]})

    def do_GET(self) -> None:
        known = self.key is None or self.headers.get("Authorization") == f"Bearer {self.key}"
        self.send_response(200 if known else 401)
        self.end_headers()
        self.wfile.write(self.body.encode() if known else b"")

    def log_message(self, *arguments: Any) -> None:
        """Nothing goes to the screen."""


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


def test_it_is_asked_for_its_names_with_its_key(box: HandMade, engine: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "key", "the-secret-key")
    found = serving(box, "--api-key", "the-secret-key", "--port", str(engine), ports=[engine])
    assert found["served"] == {"names": ["medium"], "root": "/m", "error": None}
    assert found["model"]["given"] == "/m"
    assert "the-secret-key" not in json.dumps(found)


def test_without_its_key_it_says_that_it_was_refused(
    box: HandMade, engine: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Server, "key", "another")
    found = serving(box, "/m", "--port", str(engine), ports=[engine])
    assert found["served"] == {"names": None, "root": None, "error": "/v1/models answers with 401"}


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"data": 1}', '{"data": [1]}', '{"data": [{}]}', "[" * 2000])
def test_any_answer_is_survived(box: HandMade, engine: int, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    monkeypatch.setattr(Server, "body", body)
    found = serving(box, "/m", "--port", str(engine), ports=[engine])
    assert found["served"]["names"] is None and found["served"]["error"]


def test_a_box_without_anything(tmp_path: Path) -> None:
    assert adoptable.run({}, Roots(str(tmp_path))) == {"services": [], "idle": []}


def test_it_is_a_verb_that_takes_no_lock() -> None:
    assert "adoptable" in kit.UNLOCKED
