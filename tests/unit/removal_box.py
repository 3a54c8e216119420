"""A box with gpufleet on it, made of folders, for tests of what the verbs `removable` and `remove` make of it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hostkit import (
    apt_call,
    apt_sources,
    blacklist,
    box_lock,
    build,
    files,
    garbage,
    holds,
    host_before,
    lock,
    model,
    packages,
    release,
    releases,
    remove_places,
    remove_user,
    replaced,
    resume_unit,
    runtime,
    share,
    shell,
    state,
    store,
    systemd,
)

SHA = "ab" * 32
OWNERS = "vllm.service"  # the unit that the instance `tiny` took the place of
DELETE, CLOSE = remove_places.delete, remove_places.close
STATUS = "Package: {}\nStatus: {} ok installed\nArchitecture: all\nVersion: 1\n"


class Cut(BaseException):
    """The process is killed here."""


class RemovalBox:
    """Everything below `root`; `left` steps until it is cut off; `running` units; `needs` of packages by apt."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.left = root, 1 << 30
        self.running: set[str] = set()
        self.packages: dict[str, str] = {"bash": "install"}
        self.needs: dict[str, str] = {}
        self.unwilling: set[str] = set()  # units of the owner's that do not start
        for module, name, value in (
            *((files, "ROOT", "opt"), (files, "STATE", "var/lib/gpufleet"), (files, "UNITS", "units")),
            *((state, "STATE", "var/lib/gpufleet/state.json"), (state, "JOURNAL", "var/lib/gpufleet/journal.jsonl")),
            *((releases, "HOME", "opt"), (releases, "UNITS", "units"), (release, "INSTANCES", "opt/instances")),
            *(
                (model, "MODELS", "opt/models"),
                (store, "MODELS_ROOT", "opt/models/.store"),
                (store, "ROOT", "opt/store"),
            ),
            *((runtime, "RUNTIMES", "opt/runtimes"), (build, "BUILDS", "opt/builds")),
            *((garbage, "OLD_CACHE", "opt/cache"), (garbage, "CACHE", "var/cache")),
            *((remove_places, "VAR", "var/lib"), (remove_places, "CACHE", "var/cache")),
            *((resume_unit, "KIT", "opt/kit/gpufleet-kit.pyz"), (blacklist, "PATH", "apt/51gpufleet")),
            *((packages, "STATUS", "dpkg"), (holds, "RECORD", "var/lib/gpufleet/packages.json")),
            *((apt_sources, "SOURCES", "apt"), (apt_sources, "KEYRINGS", "apt"), (box_lock, "PATH", "run/box.lock")),
            *(
                (lock, "GUARD", "run/fleet.lock"),
                (share, "LOCK", "run/share.lock"),
                (share, "SECRETS", "run/share.env"),
            ),
            *((share, "PORT", "run/share/port"), (remove_user, "SHM", "shm")),
        ):
            monkeypatch.setattr(module, name, str(root / value))
        monkeypatch.setattr(sys, "argv", [str(root / "opt/kit/gpufleet-kit-0123456789ab.pyz")])
        monkeypatch.setattr(systemd, "show", self._show)
        monkeypatch.setattr(systemd, "systemctl", self._step(self._systemctl))
        monkeypatch.setattr(apt_call, "apt", self._step(self._apt))
        monkeypatch.setattr(shell, "run", self._step(self._run))
        monkeypatch.setattr(remove_places, "delete", self._step(DELETE))
        monkeypatch.setattr(remove_places, "close", self._step(CLOSE))
        monkeypatch.setattr(remove_places, "left_by_writers", lambda: iter(()))
        monkeypatch.setattr(host_before, "changes", lambda roots: [])
        monkeypatch.setattr(remove_user, "find", self._user)
        monkeypatch.setattr(remove_user, "exists", lambda: self._user() is not None)
        monkeypatch.setattr(remove_user, "processes", lambda uid: [])
        monkeypatch.setattr(remove_user, "has_group", lambda: False)
        monkeypatch.setattr(replaced, "give_back", self._step(self._give_back))
        for folder in ("units/multi-user.target.wants", "apt", "run", "var/lib", "var/cache", "shm"):
            (root / folder).mkdir(parents=True)
        self.put("units/vllm.service", "[Service]\n")
        self.put("apt/debian.sources", "deb\n")
        self._write_packages()

    def _step(self, action: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                if action is DELETE and os.path.isdir(args[0]) and not os.path.islink(args[0]):
                    for each in Path(args[0]).iterdir():  # half removed, its mark first
                        if not each.is_dir() or each.is_symlink():
                            each.unlink()
                raise Cut
            return action(*args, **kwargs)

        return step

    # -- what is on it

    def put(self, path: str, text: str = "x") -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target

    def tree(self) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*"))

    def deploy(self) -> None:
        """As deploys leave a box: an instance that serves, one that was retired, a toolkit, a model, their files."""
        self.kit()
        for name in ("tiny", "old"):
            self.put(f"opt/instances/{name}/releases/0123456789abcdef/manifest.json", "{}")
            self.put(f"opt/instances/{name}/gates/0123456789abcdef.json", "{}")
            self.put(f"var/lib/gpufleet-{name}/last-start.json")
            self.put(f"var/cache/gpufleet-{name}/engine-1/kernels")
        (self.root / "opt/instances/tiny/current").symlink_to("releases/0123456789abcdef")
        for unit in ("gpufleet-tiny.service", "gpufleet-resume.service", "gpufleet-host.service"):
            self.put(f"units/{unit}")
            self.put(f"units/multi-user.target.wants/{unit}")
        self.running |= {"gpufleet-tiny.service", "gpufleet-share.service"}
        self.put("opt/runtimes/engine-1/pyvenv.cfg")
        self.put("opt/runtimes/.engine-2.building/tree/x")
        self.put(f"opt/store/{SHA}/engine.whl")
        self.put("opt/builds/engine.json", "{}")
        self.put("opt/builds/.other.building/log")
        self.put("var/cache/gpufleet/verify/x")
        self.put(f"opt/models/.store/{SHA}/weights")
        for name in ("config.json", files.COMPLETE):
            self.put(f"opt/models/tiny/r1/{name}", "{}")
        os.link(self.root / f"opt/models/.store/{SHA}/weights", self.root / "opt/models/tiny/r1/weights")
        state.update("tiny", gated="0123456789abcdef", port=8000, replaced={OWNERS: {"enabled": True, "active": True}})
        state.update("old", gated=None)
        state.journal("activated", instance="tiny")
        self.put("apt/51gpufleet", "// ours\n")
        self.put("apt/gpufleet-cuda.sources", "deb\n")
        self.put("apt/gpufleet-cuda.asc", "key\n")
        self.packages |= {"cuda-toolkit-13-0": "hold", "libcublas-13-0": "hold", "g++": "install"}
        self._write_packages()
        record = {"installed": ["cuda-toolkit-13-0", "libcublas-13-0"], "added": ["g++"]}
        self.put("var/lib/gpufleet/packages.json", json.dumps({**record, "held": record["installed"]}))
        self.put("user")
        for path in ("run/share.lock", "run/share/port", "run/box.lock", "run/fleet.lock"):
            self.put(path)

    def kit(self) -> None:
        """As each look puts it there."""
        for name in ("gpufleet-kit-0123456789ab.pyz", "gpufleet-kit-0123456789ab.pyz.sum", "uv-1-ab/uv"):
            self.put(f"opt/kit/{name}")
        link = self.root / "opt/kit/gpufleet-kit.pyz"
        link.unlink(missing_ok=True)
        link.symlink_to("gpufleet-kit-0123456789ab.pyz")

    def link_a_model(self) -> Path:
        """A model of the owner's, linked."""
        own = self.put("home/bob/models/mine/config.json", "{}").parent
        (self.root / "opt/models/mine").mkdir(parents=True)
        (self.root / "opt/models/mine/r1").symlink_to(own)
        return own

    # -- systemd, apt, the user

    def _show(self, unit: str) -> dict[str, Any]:
        return {"active": "active" if unit in self.running else "inactive", "sub": "", "pid": None, "job": False}

    def _systemctl(self, *arguments: str, allowed: bool = False) -> str:
        verb, unit = arguments[0], arguments[-1]
        if verb == "stop":
            self.running.discard(unit)
        elif verb == "disable":
            (self.root / "units/multi-user.target.wants" / unit).unlink(missing_ok=True)
        elif verb == "list-units":
            return "gpufleet-job-00ff.service loaded active running gpufleet pull\n" * ("job" in self.running)
        return ""

    def _give_back(self, name: str) -> dict[str, list[str]]:
        assert "gpufleet-tiny.service" not in self.running, "the port is taken still"
        if OWNERS in self.unwilling:
            return {"started": [], "failed": [f"{OWNERS} does not start. look at `systemctl status {OWNERS}`"]}
        started = [] if OWNERS in self.running else [OWNERS]
        self.running.add(OWNERS)
        return {"started": started, "failed": []}

    def _write_packages(self) -> None:
        self.put("dpkg", "\n".join(STATUS.format(*item) for item in sorted(self.packages.items())))

    def _apt(self, arguments: list[str]) -> str:
        """apt-mark, and a purge with what needs the packages; held ones only where that is allowed."""
        if arguments[0] == "apt-mark":
            word = {"hold": "hold", "unhold": "install"}[arguments[1]]
            self.packages |= dict.fromkeys(arguments[2:], word)
        else:
            assert arguments[0] == "apt-get" and "purge" in arguments, arguments
            names = {name for name in arguments[arguments.index("--") + 1 :] if name in self.packages}
            going = names | {name for name, needed in self.needs.items() if needed in names and name in self.packages}
            if "--simulate" in arguments:
                return "".join(f"Purg {name} [1]\n" for name in sorted(going))
            assert not any(self.packages[name] == "hold" for name in going)
            for name in going:
                del self.packages[name]
        self._write_packages()
        return ""

    def _user(self) -> Any:
        return SimpleNamespace(pw_uid=4242) if (self.root / "user").exists() else None

    def _run(self, arguments: list[str], **_: Any) -> str:
        assert arguments == ["userdel", "gpufleet"]
        (self.root / "user").unlink()
        return ""
