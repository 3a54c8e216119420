"""Installed versions of Debian packages, from dpkg's own file: a tenth of the time of dpkg-query, and no process."""

from __future__ import annotations

import os
import re
from typing import Any

from hostkit.roots import Roots

STATUS = "/var/lib/dpkg/status"


def read(roots: Roots, names: list[str]) -> dict[str, Any]:
    versions: dict[str, Any] = dict.fromkeys(names)
    if names:
        wanted = set(names)
        for paragraph in roots.text(STATUS).split("\n\n"):
            name = paragraph[len("Package: ") :].split("\n", 1)[0]
            if name in wanted and versions[name] is None:
                versions[name] = _installed_version(paragraph)
    return {"packages": versions}


def _installed_version(paragraph: str) -> Any:
    fields = dict(re.findall(r"^(Status|Version|Architecture): (.*)$", paragraph, re.MULTILINE))
    foreign = fields.get("Architecture") not in ("all", _ARCHITECTURE)
    return None if foreign or not fields.get("Status", "").endswith(" installed") else fields.get("Version")


_ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
