"""Which server of language models a command line starts, if any."""

from __future__ import annotations

import os
import re
from typing import NamedTuple, Optional, Sequence

# Those that an instance can take the place of, by the words after the interpreter.
MODULES = {
    "vllm.entrypoints.openai.api_server": ("vllm", ()),
    "vllm.entrypoints.cli.main": ("vllm", ("serve",)),
    "lmdeploy.serve.openai.api_server": ("lmdeploy", ()),
    "lmdeploy": ("lmdeploy", ("serve", "api_server")),
    "sglang.launch_server": ("sglang", ()),
}
PROGRAMS = {
    "vllm": ("vllm", ("serve",)),
    "lmdeploy": ("lmdeploy", ("serve", "api_server")),
    "llama-server": ("llama.cpp", ()),
    "ollama": ("ollama", ("serve",)),
    "sglang": ("sglang", ("serve",)),
    "text-generation-launcher": ("text-generation-inference", ()),
    "koboldcpp": ("koboldcpp", ()),
    "koboldcpp.py": ("koboldcpp", ()),
}
ADOPTED = ("vllm", "lmdeploy")
_PYTHON = re.compile(r"python[0-9.]*")
_WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")  # options of the interpreter
# In a unit file, which may start it by a shell.
_IN_TEXT = (
    ("vllm", re.compile(r"\bvllm\S*\s+serve\b|\bvllm\.entrypoints\.")),
    ("lmdeploy", re.compile(r"\blmdeploy\S*\s+serve\b|\blmdeploy\.serve\.")),
    ("llama.cpp", re.compile(r"\bllama-server\b")),
    ("ollama", re.compile(r"\bollama\s+serve\b")),
    ("sglang", re.compile(r"\bsglang\.launch_server\b|\bsglang\s+serve\b")),
)


class Server(NamedTuple):
    """A server's engine, and the words that follow what starts it: its model and flags."""

    engine: str
    words: list


def server(words: Sequence[str]) -> Optional[Server]:
    """The server that a process is by its command line; None for any other process, a shell around one too."""
    rest = list(words)
    if not rest:
        return None
    if _PYTHON.fullmatch(os.path.basename(rest[0])):
        module, rest = _script(rest[1:])
        return _known(MODULES, module, rest) or _known(PROGRAMS, os.path.basename(module), rest) if module else None
    return _known(PROGRAMS, os.path.basename(rest[0]), rest[1:])


def in_text(line: str) -> Optional[str]:
    """The engine that a line of a unit file starts."""
    return next((engine for engine, pattern in _IN_TEXT if pattern.search(line)), None)


def _script(words: list) -> tuple:
    """(module or script, what follows), after the interpreter's own options; ("", []) for `-c` and none at all."""
    while words:
        word = words.pop(0)
        if word == "-m":
            return (words[0], words[1:]) if words else ("", [])
        if word == "-c" or word == "-":
            return "", []
        if word in _WITH_VALUE:
            words = words[1:]
        elif not word.startswith("-"):
            parts = word.replace(".py", "").strip("/").split("/")
            dotted = next((name for name in MODULES if parts[-name.count(".") - 1 :] == name.split(".")), None)
            return dotted or word, words
    return "", []


def _known(table: dict, name: str, words: list) -> Optional[Server]:
    engine, verbs = table.get(name, ("", ()))
    if not engine or tuple(words[: len(verbs)]) != verbs:
        return None
    return Server(engine, words[len(verbs) :])


def flag(words: Sequence[str], *names: str) -> Optional[str]:
    """The value of a flag, by one of its names with their dashes, `_` and `-` alike."""
    wanted = [name.replace("_", "-") for name in names]
    found = None
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") in wanted:
            found = value if equals else words[place + 1] if place + 1 < len(words) else None
    return found
