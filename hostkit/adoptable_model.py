"""The model that a server was given: where it lies, and whether it is whole. It is read, never changed."""

from __future__ import annotations

import os
import re
from typing import Any, Mapping, Optional

from hostkit import model_check
from hostkit.roots import Roots

HOMES = ("/home/", "/root/", "/run/user/")
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
MOST = 10_000  # files; a model has some hundred


def read(roots: Roots, given: str, cwd: str, home: str, env: Mapping[str, str], revision: Optional[str]) -> dict:
    """{"given", "path", "repository", "commit"} of what a server was told, and of a folder what is in it.

    + given: a path, absolute or from `cwd`, or `owner/name` of a hub; + revision: of that
    "path" is None where there is no such folder. "look": as hostkit.model_check has it; "closed": what keeps the
    services' user from reading it; "files": {relative: {"size", and "sha256" where its cache has it by that}}
    """
    path, repository, commit = locate(roots, given, cwd, home, env, revision)
    found: dict = {"given": given, "path": path, "repository": repository, "commit": commit}
    if path is None:
        return found
    at = roots.path(path)
    look = model_check.look(at, {}, {})
    return {**found, "look": look, "closed": model_check.closed(at), "files": files(at)}


def locate(roots: Roots, given: str, cwd: str, home: str, env: Mapping[str, str], revision: Optional[str]) -> tuple:
    """(path, repository, commit); a folder of that name comes before a repository, as engines take it."""
    path = os.path.normpath(os.path.join(cwd, given))
    if os.path.isdir(roots.path(path)):
        real = _real(roots, path)
        hub = re.search(r"/models--([^/]+)--([^/]+)/snapshots/([0-9a-f]{40})$", real)
        return (real, "{}/{}".format(hub[1], hub[2]), hub[3]) if hub else (real, None, None)
    if not _REPOSITORY.fullmatch(given):
        return None, None, None
    for cache in hub_caches(home, env):
        folder = "{}/models--{}".format(cache, given.replace("/", "--"))
        named = roots.text_or_none("{}/refs/{}".format(folder, revision or "main"))
        there = roots.names(folder + "/snapshots")
        commit = (named or revision or (there[0] if len(there) == 1 else "")).strip()
        if commit and os.path.isdir(roots.path("{}/snapshots/{}".format(folder, commit))):
            return "{}/snapshots/{}".format(folder, commit), given, commit
    for cache in scope_caches(home, env):
        path = "{}/{}".format(cache, given.replace(".", "___"))
        for found in (path, "{}/{}".format(cache, given)):
            if os.path.isdir(roots.path(found)):
                return found, given, None
    return None, given, None


def _real(roots: Roots, path: str) -> str:
    """The path as it is, but where a link leads into a home, from which services are kept: then where it leads to."""
    real = os.path.realpath(roots.path(path))
    if roots.base != "/":
        return path
    return real if real.startswith(HOMES) else path


def hub_caches(home: str, env: Mapping[str, str]) -> list:
    """Where the hub's client keeps repositories, as its variables say (huggingface_hub, environment variables)."""
    base = env.get("XDG_CACHE_HOME") or "{}/.cache".format(home)
    own = env.get("HF_HOME") or "{}/huggingface".format(base)
    caches = [env.get("HF_HUB_CACHE"), env.get("HUGGINGFACE_HUB_CACHE"), "{}/hub".format(own)]
    return [cache.rstrip("/") for cache in caches if cache and cache.startswith("/")]


def scope_caches(home: str, env: Mapping[str, str]) -> list:
    """Where ModelScope's client does."""
    base = env.get("MODELSCOPE_CACHE") or "{}/.cache/modelscope/hub".format(home)
    return [base + "/models", base]


def files(path: str) -> dict:
    """{relative path: {"size", "sha256"}} of a folder's files; the hub's cache names a large file by its sha256."""
    found: dict = {}
    for folder, _, names in os.walk(path):
        for name in names:
            at = os.path.join(folder, name)
            if os.path.isfile(at) and len(found) < MOST:
                entry: dict[str, Any] = {"size": os.path.getsize(at)}
                target = os.path.basename(os.readlink(at)) if os.path.islink(at) else ""
                if _SHA256.fullmatch(target):
                    entry["sha256"] = target
                found[os.path.relpath(at, path)] = entry
    return found
