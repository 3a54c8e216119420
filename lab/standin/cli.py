"""`vllm serve MODEL --config FILE`: reads the page, loads nothing, serves, and misbehaves as its variables say."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from . import moods, page, server

LINE = {"api_server.py": 678, "kv_cache_utils.py": 2235, "core.py": 1100, "envs.py": 2128}


def log(message: str, file: str = "api_server.py", level: str = "INFO") -> None:
    """A line as vLLM's logger writes it."""
    print(f"{level} {time.strftime('%m-%d %H:%M:%S')} [{file}:{LINE[file]}] {message}", flush=True)


def main() -> None:
    """The console script `vllm`."""
    parser = argparse.ArgumentParser(prog="vllm")
    parser.add_argument("--version", action="version", version=server.VERSION)
    serving = parser.add_subparsers(required=True).add_parser("serve")
    serving.add_argument("model")
    serving.add_argument("--config", type=Path, required=True)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    try:
        flags = page.read(given.config.read_text(encoding="utf-8"))
        run(given.model, flags, moods.of(os.environ))
    except (OSError, ValueError) as error:
        serving.error(str(error))


def run(model: str, flags: dict[str, Any], mood: moods.Moods) -> NoReturn:
    """Serve for ever. Raises ValueError for a model that is none, OSError for a port that is taken."""
    log(f"vLLM stand-in {server.VERSION}, serving model {model}")
    if not (Path(model) / "config.json").is_file():
        raise ValueError(f"{model} has no config.json")
    if "unknown-variable" in mood:
        log("Unknown vLLM environment variable detected: VLLM_NO_SUCH_THING", "envs.py", "WARNING")
    engine = engine_of(model, flags, mood)
    if "crash-loop" in mood:
        crash("the stand-in crashes when it starts, as STANDIN says")
    if "never-ready" in mood:
        while True:
            signal.pause()
    time.sleep(mood.start_seconds)
    tokens = 8 * engine.max_model_len
    log(f"GPU KV cache size: {tokens:,} tokens", "kv_cache_utils.py")
    log(f"Maximum concurrency for {engine.max_model_len:,} tokens per request: 8.00x", "kv_cache_utils.py")
    host, port = str(flags.get("host") or "0.0.0.0"), int(flags.get("port", 8000))
    port = server.serve(engine, host, port)
    log(f"Starting vLLM server on http://{host}:{port}")
    print("INFO:     Application startup complete.", flush=True)
    if mood.crash_after is not None:
        time.sleep(mood.crash_after)
        crash("the stand-in crashes some time after its start, as STANDIN says")
    while True:
        signal.pause()


def engine_of(model: str, flags: dict[str, Any], mood: moods.Moods) -> server.Engine:
    """The engine that the flags of a page ask for."""
    name = flags.get("served-model-name") or model
    speculative = json.loads(flags.get("speculative-config") or "null") or {}
    return server.Engine(
        name=name[0] if isinstance(name, list) else str(name),
        path=model,
        max_model_len=int(flags.get("max-model-len") or 2048),
        drafts=int(speculative.get("num_speculative_tokens") or 0),
        tools=bool(flags.get("enable-auto-tool-choice") and flags.get("tool-call-parser")),
        images=not flags.get("language-model-only"),
        moods=mood,
    )


def crash(why: str) -> NoReturn:
    """End as vLLM does: the cause, then lines that say nothing."""
    log("EngineCore failed to start.", "core.py", "ERROR")
    print(f"RuntimeError: {why}", flush=True)
    print("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}", flush=True)
    sys.stdout.flush()
    os._exit(1)
