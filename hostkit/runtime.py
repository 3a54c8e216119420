"""A runtime: one stack in a directory named by its content, complete or absent.

uv does the installing, from a lock with hashes and from the patched wheels that the controller sent. uv's own cache
is kept until the runtime is complete, so that an install which was interrupted goes on where it stopped.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from urllib.parse import urlsplit

from hostkit import events, files, shell, state, store
from hostkit.errors import Failure

RUNTIMES = os.path.join(files.ROOT, "runtimes")
UV_CACHE = os.path.join(files.ROOT, "cache", "uv")


def run(spec: dict) -> dict:
    """Install the runtime `name`.

    + uv: {version, sha256}; lock: text of the hashed requirements; wheels: [{name, sha256}] sent before
    + index: {pypi, torch}: addresses of package indexes, null for uv's own default
    + instances: names of those that run on it
    + verify: lines of Python that must run in it; facts: what is written into its mark of completeness
    Returns {"missing": [...]} when wheels have to be sent first, {"path"} when it is complete.
    """
    directory = os.path.join(RUNTIMES, spec["name"])
    if files.is_complete(directory):
        return {"path": directory}
    wheels = [(wheel, store.path(wheel["name"], wheel["sha256"])) for wheel in spec["wheels"]]
    missing = [wheel for wheel, path in wheels if files.sha256(path) != wheel["sha256"]]
    if missing:
        return {"missing": missing}
    state.doubt(spec["instances"])
    if os.path.exists(directory):
        events.log("an earlier install of {} did not end: beginning it again".format(spec["name"]))
        shutil.rmtree(directory)
    options = index_options(spec["index"])
    uv = install_uv(spec["uv"], spec["index"])
    env = {"UV_CACHE_DIR": UV_CACHE, "UV_NO_PROGRESS": "1", "UV_PYTHON_DOWNLOADS": "never", "UV_LINK_MODE": "hardlink",
           "UV_HTTP_TIMEOUT": "300", "UV_NO_CONFIG": "1"}  # fmt: skip
    events.log("making the virtual environment {}".format(directory))
    step([uv, "venv", "--python", spec["python"], directory], env)
    python = os.path.join(directory, "bin", "python")
    with tempfile.TemporaryDirectory() as scratch:
        lock = os.path.join(scratch, "requirements.txt")
        with open(lock, "w", encoding="utf-8") as handle:
            handle.write(spec["lock"])
            for wheel, path in wheels:
                handle.write("\n{} --hash=sha256:{}\n".format(path, wheel["sha256"]))
        install = [uv, "pip", "install", "--python", python, "--no-deps", "--require-hashes", "-r", lock]
        step(install + options, env)
    step([uv, "pip", "check", "--python", python], env)
    # From `/`, so that no source tree in the working directory can stand in for the installed package.
    for line in spec["verify"]:
        events.log("verifying: {}".format(line))
        step(["/usr/bin/env", "--chdir=/", python, "-I", "-c", line], spec["env"])
    files.complete(directory, spec["facts"])
    shutil.rmtree(UV_CACHE, ignore_errors=True)
    return {"path": directory}


def index_options(index: dict) -> list:
    """uv's options for the mirrors; nothing for uv's own default index."""
    pypi, torch = index.get("pypi"), index.get("torch")
    options = ["--default-index", pypi] if pypi else []
    if torch and torch != pypi:
        # Every file is pinned by its hash, so it does not matter which of the two has it.
        options += ["--index", torch, "--index-strategy", "unsafe-best-match"]
    for url in (pypi, torch):
        if url and url.startswith("http://"):
            options += ["--allow-insecure-host", urlsplit(url).hostname or ""]
    return options


def install_uv(uv: dict, index: dict) -> str:
    """The path of uv, installed by pip with its hash pinned, in an environment of its own."""
    directory = os.path.join(files.ROOT, "kit", "uv-{}-{}".format(uv["version"], uv["sha256"][:12]))
    program = os.path.join(directory, "bin", "uv")
    if files.is_complete(directory):
        return program
    shutil.rmtree(directory, ignore_errors=True)
    events.log("installing uv {}".format(uv["version"]))
    step([sys.executable, "-m", "venv", directory], {})
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as handle:
        handle.write("uv=={} --hash=sha256:{}\n".format(uv["version"], uv["sha256"]))
        handle.flush()
        command = [os.path.join(directory, "bin", "pip"), "install", "--quiet", "--disable-pip-version-check",
                   "--no-deps", "--require-hashes", "--only-binary=:all:", "-r", handle.name]  # fmt: skip
        if index.get("pypi"):
            command += ["--index-url", index["pypi"]]
            if index["pypi"].startswith("http://"):
                command += ["--trusted-host", urlsplit(index["pypi"]).netloc]
        step(command, {})
    files.complete(directory, uv)
    return program


def step(arguments: list, env: dict) -> None:
    try:
        shell.run(arguments, env=env)
    except shell.Ended as ended:
        lines = [line.strip(" ×│╰├─▶") for line in ended.tail.splitlines() if line.strip()]
        raise Failure(
            "{} failed: {}".format(" ".join(os.path.basename(word) for word in arguments[:3]), "; ".join(lines[-6:])),
            "read the message; when it names the network, check the box's network and the mirrors setting",
        )
