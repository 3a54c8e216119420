"""What `gpufleet init` writes: the files of an owner's folder, as text. None of them needs a change at an upgrade."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Box = tuple[str, Mapping[str, Any]]  # as an inventory lists it

DEPLOY = '''\
"""The whole deploy: gpufleet's own page, of the version that is installed.

Upgrading gpufleet needs no change here. What you add below runs afterwards, on each box (pyinfra's operations).
"""

from operations import product

product.deploy()
'''

CONFIG = '''\
"""What gpufleet makes sure of before pyinfra connects. Upgrading it needs no change here."""

from operations import session

session.install()
'''

INVENTORY = '''\
"""Your boxes: names, addresses, and what each serves. Everything else about them is found out.

What you want otherwise goes into group_data/: all.py is for all boxes, sm75.py for those with such cards, nvlink.py,
sm75_pcie.py …, or a file named after a group of your own.
"""

from gpufleet.inventory import by_traits

boxes = [
{boxes}]

# A group of your own, for --limit and for group_data/kitchen.py:
# kitchen = ["turing-1"]

globals().update(by_traits(boxes))
'''

EXAMPLE = """\
    # One line a box. ssh_hostname and the other ssh_… keys are pyinfra's; your ~/.ssh/config is honoured too.
    # ("turing-1", {"ssh_hostname": "192.168.1.11", "ssh_user": "me", "serve": ["qwen3-0.6b"]}),
    # A serve entry can say more: another port, flags and variables of the engine for this box only.
    # ("turing-2", {"ssh_hostname": "192.168.1.12", "serve": [{"model": "qwen3-0.6b", "port": 8080}]}),
"""

SETTINGS = '''\
"""Settings of every box; the weakest layer. Stacks and models bring their own: write here what you want otherwise."""

# serve_args = {"max-model-len": 8192}  # flags of the engine, by the engine's own names
# serve_env = {"VLLM_LOGGING_LEVEL": "DEBUG"}  # its variables
# host = {"power_limit": 220}  # watts of each card
# mirrors = {"hub": "https://hf-mirror.com"}  # where models, packages and wheels come from
'''

MODELS = """\
Pages of your own models, `NAME.yaml`, written by hand or by `gpufleet models add`. They add to gpufleet's own, and win
over those of the same name.
"""

STACKS = """\
Pages of your own stacks, `NAME.yaml`. They add to gpufleet's own, and win over those of the same name. Their locks,
patches and tables of flags go into `files/locks`, `files/patches` and `files/engines`.
"""

IGNORE = """\
# Reports of runs.
inventory/reports/
# What boxes answered: made to be kept and reviewed in git. Take the # away when you would rather not.
# inventory/facts/
# Passwords, tokens and keys are for no git.
passwords.py
.env
*.key
*.pem
# What programs leave.
pyinfra-debug.log
__pycache__/
"""


def files(boxes: Sequence[Box], settings: Mapping[str, Any], pages: Mapping[str, str]) -> dict[str, str]:
    """The text of each file by its path in the folder.

    + boxes: those that the inventory lists
    + settings: those of all boxes
    + pages: of models, by the model's name
    """
    return {
        "deploy.py": DEPLOY,
        "config.py": CONFIG,
        "inventory/home.py": inventory(boxes),
        "group_data/all.py": SETTINGS + assigned(settings),
        **{f"files/models/{name}.yaml": text for name, text in pages.items()},
        "files/models/README.md": MODELS,
        "files/stacks/README.md": STACKS,
        ".gitignore": IGNORE,
    }


def inventory(boxes: Sequence[Box]) -> str:
    """The text of inventory/home.py; without any box it has examples, and says so when it is used."""
    listed = "".join(f"    ({literal(name)}, {literal(data)}),\n" for name, data in boxes)
    return INVENTORY.replace("{boxes}", listed or EXAMPLE)


def assigned(settings: Mapping[str, Any]) -> str:
    """Settings as group_data has them, after an empty line; nothing for none."""
    lines = "".join(f"{key} = {literal(value)}\n" for key, value in settings.items())
    return f"\n{lines}" if lines else ""


def literal(value: Any) -> str:
    """A value as Python, with the quotes that the examples have."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{literal(key)}: {literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(literal(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
