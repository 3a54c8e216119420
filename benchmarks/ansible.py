"""The desired state as an Ansible playbook: ten tasks with loops, no facts gathered, pipelining on, fifty forks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.desired import FILES, PACKAGES, Desired
from lab.engine import WHEEL

PACKAGES_COMMAND = (
    f"dpkg-query -W {' '.join(PACKAGES)} >/dev/null 2>&1 || "
    f"DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends {' '.join(PACKAGES)}"
)
ANSIBLE_CFG = """\
[defaults]
forks = 50
gathering = explicit
retry_files_enabled = False
{strategy}
[ssh_connection]
pipelining = True
control_path_dir = {sockets}
ssh_args = -o ControlMaster=auto -o ControlPersist=15s -o UserKnownHostsFile={known_hosts}
"""


def playbook(desired: Desired, folder: Path) -> list[dict[str, Any]]:
    """+ folder: where the files are that are sent"""
    root, owner = desired.root, {"owner": desired.user, "group": desired.user}
    user = {"name": desired.user, "system": True, "home": root, "create_home": False, "shell": "/usr/sbin/nologin"}
    release = f"{root}/releases/1"
    sent = f"{folder}/{{{{ value }}}}"
    tasks: list[dict[str, Any]] = [
        # Its own module wants python3-apt on the box, which the lab has not; this is less work than that one does.
        {"name": "packages", "shell": {"cmd": PACKAGES_COMMAND}, "register": "apt", "changed_when": "apt.stdout != ''"},
        {"name": "user", "user": user},
        {
            "name": "directories",
            "file": {"path": "{{ item }}", "state": "directory", "mode": "0755", **owner},
            "loop": desired.directories,
        },
        {
            "name": "wheel and model",
            "copy": {"src": f"{folder}/{{{{ item.file }}}}", "dest": f"{root}/{{{{ item.to }}}}", "mode": "0644"},
            "loop": [
                {"file": WHEEL, "to": f"runtimes/{WHEEL}"},
                {"file": "config.json", "to": "models/standin/config.json"},
            ],
        },
        {"name": "venv", "command": {"cmd": f"python3 -m venv {desired.venv}", "creates": f"{desired.venv}/bin/pip"}},
        {
            "name": "runtime",
            "command": {
                "cmd": f"{desired.venv}/bin/pip install --quiet --no-index {root}/runtimes/{WHEEL}",
                "creates": f"{desired.venv}/bin/vllm",
            },
        },
        {
            "name": "release",
            "copy": {"src": f"{sent}/{{{{ item }}}}", "dest": f"{release}/{{{{ item }}}}", "mode": "0644", **owner},
            "loop": list(FILES),
            "register": "release",
        },
        {"name": "current", "file": {"src": release, "dest": f"{root}/current", "state": "link"}},
        {
            "name": "unit",
            "copy": {"src": f"{sent}/{desired.unit}", "dest": f"/etc/systemd/system/{desired.unit}", "mode": "0644"},
            "register": "unit",
        },
        {
            "name": "service",
            "systemd": {
                "name": desired.unit,
                "enabled": True,
                "state": "{{ 'restarted' if release.changed or unit.changed else 'started' }}",
                "daemon_reload": "{{ unit.changed }}",
            },
        },
    ]
    return [{"hosts": "all", "gather_facts": False, "tasks": tasks}]
