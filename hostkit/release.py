"""A release: the rendered files of one instance in a directory named by their digest, staged whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil

from hostkit import files, shell, state
from hostkit.errors import Failure

INSTANCES = os.path.join(files.ROOT, "instances")


def run(spec: dict) -> dict:
    """Stage `files` {relative path: text} of `instance` as `releases/<digest>`; edited ones are put right.

    The manifest is one of the files, and the digest is its hash; it names the release's links, too. A file that was
    edited on the box is replaced and the instance is marked stale, so that its service is restarted even when this run
    ends in between. A link that was lost or moved is made again; no running service looks at it, so none is restarted.
    """
    ensure_user()
    directory = os.path.join(INSTANCES, spec["instance"], "releases", spec["digest"])
    wanted = {relative: text.encode() for relative, text in spec["files"].items()}
    if hashlib.sha256(wanted["manifest.json"]).hexdigest()[:16] != spec["digest"]:
        raise Failure("release {} does not match its manifest".format(spec["digest"]), "report this: it is a defect")
    links = json.loads(spec["files"]["manifest.json"]).get("links", {})
    if not os.path.isdir(directory):
        aside = directory + ".incoming"
        shutil.rmtree(aside, ignore_errors=True)
        for relative, data in wanted.items():
            files.write(os.path.join(aside, relative), data, mode(relative))
        for name, target in links.items():
            files.link(target, os.path.join(aside, name))
        os.rename(aside, directory)
        files.sync_directory(os.path.dirname(directory))
        return {"staged": True, "repaired": []}
    repaired = []
    for relative, data in sorted(wanted.items()):
        path = os.path.join(directory, relative)
        if files.sha256(path) != hashlib.sha256(data).hexdigest():
            state.update(spec["instance"], stale=True)
            files.write(path, data, mode(relative))
            repaired.append(relative)
    for name, target in sorted(links.items()):
        if files.link(target, os.path.join(directory, name)):
            repaired.append(name)
    if repaired:
        state.journal("repaired", instance=spec["instance"], digest=spec["digest"], files=repaired)
    return {"staged": False, "repaired": repaired}


def mode(name: str) -> int:
    """An environment may hold an owner's tokens: systemd reads it as root, before the service has its user."""
    return 0o600 if name.endswith(".env") else 0o644


def ensure_user() -> None:
    """The system user that the services run as, with the groups that own the GPU's device files."""
    with open("/etc/passwd", encoding="utf-8") as handle:
        if any(line.startswith(files.USER + ":") for line in handle):
            return
    with open("/etc/group", encoding="utf-8") as handle:
        known = {line.split(":", 1)[0] for line in handle}
    command = ["useradd", "--system", "--user-group", "--home-dir", files.STATE, "--no-create-home",
               "--shell", "/usr/sbin/nologin"]  # fmt: skip
    groups = [group for group in ("video", "render") if group in known]
    try:
        shell.run(command + (["--groups", ",".join(groups)] if groups else []) + [files.USER])
    except shell.Ended as ended:
        raise Failure("cannot add the user {}: {}".format(files.USER, ended.tail), "add it by hand, then deploy again")


def manifest(directory: str) -> dict:
    with open(os.path.join(directory, "manifest.json"), encoding="utf-8") as handle:
        return dict(json.load(handle))
