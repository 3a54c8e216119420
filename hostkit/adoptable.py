"""Which servers of language models run on this box, and all that is needed to serve the same: it only looks.

Processes are what counts: a unit may start a script that starts a server. The values of secrets stay on the box.
"""

from __future__ import annotations

import os
import pwd
import re
from typing import Any, Optional

from hostkit import adoptable_argv as argv
from hostkit import adoptable_model, adoptable_names, adoptable_runtime, adoptable_unit, listeners
from hostkit.adoptable_secrets import Secrets
from hostkit.roots import Roots

# Variables whose values are told: the engines', and those of what they run with. Of all others only the names are.
TOLD = re.compile(
    r"(VLLM|LMDEPLOY|TM|TURBOMIND|LMCACHE|NCCL|CUDA|NVIDIA|TORCH|TORCHINDUCTOR|PYTORCH|TRITON|FLASHINFER|FLASH|HF|"
    r"HUGGINGFACE|HUGGING|TRANSFORMERS|TOKENIZERS|SAFETENSORS|MODELSCOPE|OMP|MKL|KMP|GOMP|GLOO|RAY|XFORMERS|UCX|GPU)_.*|"
    r"PATH|LD_LIBRARY_PATH|LD_PRELOAD|PYTHONPATH|PYTHONHASHSEED|PYTHONUNBUFFERED|HOME|XDG_CACHE_HOME|VIRTUAL_ENV|"
    r"CONDA_PREFIX|CONDA_DEFAULT_ENV|DO_NOT_TRACK|MALLOC_.*|MAX_JOBS|TMPDIR|CC|CXX|CUDA|NUMEXPR_.*|OPENBLAS_.*"
)
LONGEST = 100_000  # bytes of a file of flags
PORTS = {"vllm": 8000, "lmdeploy": 23333, "llama.cpp": 8080, "ollama": 11434, "sglang": 30000}  # where none is given


def run(spec: dict, roots: Optional[Roots] = None) -> dict:
    """{"services": [each server that runs], "idle": [units that would start one]}; gpufleet's own are left out.

    A service has "engine", "pid", "pids" (it and all that it started), "user", "port", what hostkit.adoptable_unit
    tells of its unit, and of an engine that is adopted "words" (its model and flags), "config" (its file of flags),
    "env" (None: the value stays here), "cwd", "served", "runtime" and "model".
    """
    root = roots or Roots()
    ports = listeners.read(root)["ports"]
    commands = {pid: command(root, pid) for pid in processes(root)}
    parents = {pid: parent(root, pid) for pid in commands}
    servers = {pid: found for pid, words in commands.items() if (found := argv.server(words))}
    first = [pid for pid in sorted(servers) if not servers.keys() & ancestors(pid, parents)]
    places = {pid: adoptable_unit.place(root, pid) for pid in first}
    first = [pid for pid in first if not adoptable_unit.OURS.match(places[pid]["unit"] or "")]
    of_system = sorted({places[pid]["unit"] for pid in first if places[pid]["scope"] == "system"})
    units = adoptable_unit.show(root, of_system)
    services = []
    for pid in first:
        family = [other for other in commands if other == pid or pid in ancestors(other, parents)]
        service = {"engine": servers[pid].engine, "pid": pid, "pids": family, **places[pid]}
        service["port"] = port_of(servers[pid], [int(port) for port, owner in ports.items() if owner["pid"] in family])
        services.append({**service, **details(root, pid, commands[pid], servers[pid], service, units)})
    return {"services": services, "idle": adoptable_unit.idle(root, of_system)}


def details(roots: Roots, pid: int, command: list, server: argv.Server, service: dict, units: dict) -> dict:
    """All else of one service, without the values of secrets."""
    secrets, env = Secrets(), environment(roots, pid)
    secrets.variables(env)
    user, home = account(roots, pid)
    home = env.get("HOME") or home
    words = secrets.words(server.words)
    found: dict = {"user": user, **of_unit(roots, service, home, units, secrets)}
    if server.engine in argv.ADOPTED and service["scope"] != "container":
        cwd = roots.link_or_none("/proc/{}/cwd".format(pid)) or "/"
        served = names(server, env, service["port"])
        given = model_of(server) or served["root"]
        runtime = adoptable_runtime.read(roots, pid, command, env)
        found.update(words=words, config=config(roots, server, cwd, secrets), cwd=cwd, served=served, runtime=runtime)
        found["env"] = {
            name: secrets.text(value) if TOLD.fullmatch(name) and value not in secrets.values else None
            for name, value in sorted(env.items())
        }
    found = secrets.scrub(found)
    if "words" in found:
        revision = argv.flag(server.words, "--revision")
        found["model"] = adoptable_model.read(roots, given, cwd, home, env, revision) if given else None
    return found


def of_unit(roots: Roots, service: dict, home: str, units: dict, secrets: Secrets) -> dict:
    """The files and settings of the unit that it is of; of a process that was started by hand nothing."""
    unit = service["unit"]
    if service["scope"] == "system":
        return adoptable_unit.described(roots, unit, units.get(unit, {}), secrets)
    nothing: dict = {"fragment": None, "drop_ins": [], "enabled": "", "active": "active", "transient": False}
    if service["scope"] == "user":
        path = adoptable_unit.user_file(roots, unit, home)
        return {
            **nothing,
            "fragment": path,
            "settings": adoptable_unit.settings(roots, [path] if path else [], secrets),
        }
    return {**nothing, "settings": {}}


def model_of(server: argv.Server) -> Optional[str]:
    """The model as it stands in the command line; None where only the server knows."""
    named = argv.flag(server.words, "--model", "--model-path" if server.engine == "lmdeploy" else "--model")
    first = server.words[0] if server.words and not server.words[0].startswith("-") else None
    return first or named


def port_of(server: argv.Server, listening: list) -> Optional[int]:
    """The port that it serves on: its processes listen on others too, for one another."""
    given = argv.flag(server.words, "--port", "--server-port") or ""
    wanted = int(given) if given.isdigit() else PORTS.get(server.engine)
    return wanted if wanted in listening else min(listening, default=None)


def names(server: argv.Server, env: dict, port: Optional[int]) -> dict:
    """What it answers to, asked at its port."""
    if port is None:
        return {"names": None, "root": None, "error": "it listens on no port"}
    host = argv.flag(server.words, "--host", "--server-name")
    key = argv.flag(server.words, "--api-key", "--api-keys") or env.get("VLLM_API_KEY")
    everywhere = host in (None, "", "0.0.0.0", "::", "localhost")  # noqa: S104 - it is compared, not listened on
    return adoptable_names.read("127.0.0.1" if everywhere else str(host), port, key)


def config(roots: Roots, server: argv.Server, cwd: str, secrets: Secrets) -> Optional[dict]:
    """The file of flags that vLLM was given: {"path", "text"}; the text is None when it cannot be read."""
    given = argv.flag(server.words, "--config")
    if not given or server.engine != "vllm":
        return None
    path = os.path.normpath(os.path.join(cwd, given))
    text = roots.text_or_none(path)
    readable = text is not None and len(text) <= LONGEST
    return {"path": path, "text": secrets.page(text) if text is not None and readable else None}


def processes(roots: Roots) -> list:
    return sorted(int(name) for name in roots.names("/proc") if name.isdigit())


def command(roots: Roots, pid: int) -> list:
    """The words a process was started with; none of the kernel's own, and of one that ended meanwhile."""
    text = roots.text_or_none("/proc/{}/cmdline".format(pid)) or ""
    return text.rstrip("\0").split("\0") if text.strip("\0") else []


def parent(roots: Roots, pid: int) -> int:
    after = (roots.text_or_none("/proc/{}/stat".format(pid)) or "").rpartition(")")[2].split()
    return int(after[1]) if len(after) > 1 else 0


def ancestors(pid: int, parents: dict) -> set:
    found: set = set()
    while parents.get(pid) and parents[pid] not in found:
        pid = parents[pid]
        found.add(pid)
    return found


def environment(roots: Roots, pid: int) -> dict:
    """The variables that a process was started with."""
    text = roots.text_or_none("/proc/{}/environ".format(pid)) or ""
    return dict(item.split("=", 1) for item in text.split("\0") if "=" in item)


def account(roots: Roots, pid: int) -> Any:
    """(name, home) of a process's user."""
    number = re.search(r"^Uid:\s+(\d+)", roots.text_or_none("/proc/{}/status".format(pid)) or "", re.MULTILINE)
    for line in (roots.text_or_none("/etc/passwd") or "").splitlines():
        fields = line.split(":")
        if number and len(fields) > 5 and fields[2] == number[1]:
            return fields[0], fields[5]
    try:
        found = pwd.getpwuid(int(number[1])) if number and roots.real else None  # of a directory service
    except KeyError:
        found = None
    return (found.pw_name, found.pw_dir) if found else (number[1] if number else "unknown", "/root")
