"""The lab's stand-in engine: a wheel with the same bytes each time, pages that the product reads, vLLM's manners."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpufleet.catalogue import load
from gpufleet.inventory import incomplete
from gpufleet.models import Model
from gpufleet.spelling import config
from gpufleet.stacks import Stack
from gpufleet.wheelhouse.lock import parse
from lab import engine
from lab.paths import settings
from lab.standin import moods

PROMPT = "What is 17 + 25? Answer with the number only."
TOOL = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("lab")
    return engine.build(settings({"GPUFLEET_LAB_HOME": str(home / "a")}))


def test_the_same_bytes_each_time(built: Path, tmp_path: Path) -> None:
    engine.wheel(tmp_path / "again.whl")
    assert (tmp_path / "again.whl").read_bytes() == (built / engine.WHEEL).read_bytes()


def test_the_product_reads_its_pages(built: Path, tmp_path: Path) -> None:
    engine.write(engine.pages(built, "http://10.0.0.1:8077/models/"), tmp_path)
    stacks = load(Stack, "stack", [tmp_path / "stacks"])
    assert incomplete(stacks) == []
    (pin,) = parse(stacks["standin"].lock_text("3.11"), "lock")
    assert (pin.name, pin.filename) == ("vllm", engine.WHEEL)
    model = load(Model, "model", [tmp_path / "models"])["standin"]
    assert model.source.http == f"http://10.0.0.1:8077/models/standin/{model.revision}/"
    assert list(model.source.files) == ["config.json"]


class Served:
    """The wheel's own program, as a unit runs it."""

    def __init__(self, built: Path, folder: Path, flags: dict[str, Any] | None = None, **env: str) -> None:
        with zipfile.ZipFile(built / engine.WHEEL) as wheel:
            wheel.extractall(folder / "site")
        (folder / "serve.yaml").write_text(config({"host": "127.0.0.1", "port": 0, **(flags or {})}))
        words = ["serve", str(built / "model"), "--config", str(folder / "serve.yaml")]
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"from {engine.MODULE}.cli import main; main()", *words],
            env={**os.environ, "PYTHONPATH": str(folder / "site"), "PYTHONSAFEPATH": "1", **env},
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.lines: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines += iter(self.process.stdout.readline, "")

    def log(self) -> str:
        """All that it wrote, once it ended."""
        self.process.wait(30)
        self.reader.join(10)
        return "".join(self.lines)

    @property
    def url(self) -> str:
        """Once it answers."""
        while not (said := [line for line in list(self.lines) if "Starting vLLM server on " in line]):
            assert self.process.poll() is None, self.lines
            time.sleep(0.02)
        return said[0].split()[-1]

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return str(answer.read().decode())

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        request = urllib.request.Request(self.url + path, json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=30) as answer:
            return dict(json.load(answer))

    def chat(self, prompt: str = PROMPT, **more: Any) -> dict[str, Any]:
        return self.post("/v1/chat/completions", messages=[{"role": "user", "content": prompt}], **more)

    def drafts(self) -> dict[str, float]:
        lines = [line for line in self.get("/metrics").splitlines() if line.startswith("vllm:spec_decode")]
        return {line.split("{")[0].split("num_")[1]: float(line.split()[1]) for line in lines}


Serve = Callable[..., Served]


@pytest.fixture
def serve(built: Path, tmp_path: Path) -> Iterator[Serve]:
    made: list[Served] = []

    def one(flags: dict[str, Any] | None = None, **env: str) -> Served:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Served(built, folder, flags, **env))
        return made[-1]

    yield one
    for served in made:
        served.process.kill()
        served.process.wait()


def error(call: Callable[[], Any]) -> tuple[int, str]:
    with pytest.raises(urllib.error.HTTPError) as raised:
        call()
    return raised.value.code, json.load(raised.value)["error"]["message"]


def test_it_answers_as_vllm_does(serve: Serve) -> None:
    mtp = {"method": "mtp", "num_speculative_tokens": 1}
    served = serve({"served-model-name": ["one", "two"], "speculative-config": mtp, "max-model-len": 100})
    assert served.get("/health") == ""
    first, second = (served.chat(model="one", max_tokens=8, temperature=0, odd=1) for _ in range(2))
    text = first["choices"][0]["message"]["content"]
    assert text.startswith("42 ") and text == second["choices"][0]["message"]["content"]
    assert first["usage"] == {"prompt_tokens": 14, "completion_tokens": 8, "total_tokens": 22}
    assert served.drafts() == {"drafts_total": 8, "draft_tokens_total": 8, "accepted_tokens_total": 8}
    assert 'vllm:num_requests_running{engine="0",model_name="one"} 0.0' in served.get("/metrics")
    assert served.post("/tokenize", prompt="one two three")["count"] == 3
    assert json.loads(served.get("/v1/models"))["data"][0]["max_model_len"] == 100
    assert error(lambda: served.chat(model="three")) == (404, "The model `three` does not exist.")
    assert error(lambda: served.chat("word " * 90, max_tokens=10))[0] == 400
    assert served.chat("word " * 86, max_tokens=10)["usage"]["total_tokens"] == 100
    assert error(lambda: served.chat(tools=[TOOL]))[0] == 400
    served.process.terminate()
    assert "GPU KV cache size: 800 tokens" in served.log()
    assert served.process.returncode == 0


def test_tools_and_streams(serve: Serve) -> None:
    served = serve({"enable-auto-tool-choice": True, "tool-call-parser": "hermes"})
    (call,) = served.chat("The weather in Oslo?", tools=[TOOL])["choices"][0]["message"]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("look", {"city": "Oslo"})
    asked = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 3, "stream": True}
    request = urllib.request.Request(served.url + "/v1/chat/completions", json.dumps(asked).encode())
    with urllib.request.urlopen(request, timeout=30) as answer:
        parts = [line.removeprefix("data: ") for line in answer.read().decode().splitlines() if line]
    assert parts[-1] == "[DONE]"
    deltas = [json.loads(part)["choices"][0]["delta"] for part in parts[:-1]]
    assert "".join(delta.get("content", "") for delta in deltas).startswith("42 ")


def test_it_misbehaves_as_it_is_told(serve: Serve) -> None:
    mtp = {"speculative-config": {"method": "mtp", "num_speculative_tokens": 1}}
    failing = serve(STANDIN="fail-completions")
    assert failing.get("/health") == "" and error(failing.chat)[0] == 500
    idle = serve(mtp, STANDIN="no-drafts")
    idle.chat(max_tokens=4)
    assert set(idle.drafts().values()) == {0}
    useless = serve(mtp, STANDIN="rejects-drafts,wavering")
    assert useless.chat(max_tokens=4) != useless.chat(max_tokens=4)
    assert useless.drafts() == {"drafts_total": 8, "draft_tokens_total": 8, "accepted_tokens_total": 0}


def test_it_ends_as_it_is_told(serve: Serve) -> None:
    looping, later, wrong = serve(STANDIN="crash-loop"), serve(STANDIN="crash-after-0.3s"), serve(STANDIN="sulking")
    assert "RuntimeError: the stand-in crashes when it starts" in looping.log() and looping.process.returncode == 1
    assert re.search("(?s)Application startup complete.*RuntimeError: .* crashes some time after", later.log())
    assert later.process.returncode == 1
    assert "sulking is none of" in wrong.log() and wrong.process.returncode == 2


def test_it_is_not_ready_before_its_time(serve: Serve) -> None:
    never = serve(STANDIN="never-ready", STANDIN_START_SECONDS="0")
    late = serve(STANDIN_START_SECONDS="0.5")
    assert late.get("/health") == ""
    assert never.process.poll() is None and not any("Starting vLLM server" in line for line in never.lines)
    never.process.terminate()
    assert never.process.wait(30) == 0


def test_a_token_takes_its_time() -> None:
    assert moods.of({"STANDIN": "slow", "STANDIN_TOKEN_MS": "20"}).token_seconds == pytest.approx(0.2)
    assert moods.of({}).token_seconds == pytest.approx(0.005)
