"""What values of the box were before gpufleet set them, so that they can be put back when it leaves.

host-before.json: {key: {"was", "set"}}, the keys those of hostkit.host_values.Value. It is written before the value is.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, NamedTuple, Optional

from hostkit import files, host_cards, host_values
from hostkit.roots import Roots

HOSTS = "hosts_entry"


def path() -> str:
    return os.path.join(files.STATE, "host-before.json")


def read(roots: Roots) -> Dict[str, Dict[str, Any]]:
    """Nothing when it is not there, or cannot be read."""
    try:
        found = json.loads(roots.text_or_none(path()) or "{}")
    except ValueError:
        return {}
    items = found.items() if isinstance(found, dict) else ()
    return {key: item for key, item in items if isinstance(item, dict) and {"was", "set"} <= set(item)}


def note(key: str, was: Any, wanted: Any) -> None:
    """A value is about to be set. One that is as we set it last keeps what it was before that.

    Any other one was changed meanwhile, by its owner or a boot, and that is what it was.
    """
    record = read(Roots())
    known = record.get(key)
    new = {"was": known["was"] if known and known["set"] == was else was, "set": wanted}
    if new != known:
        text = json.dumps({**record, key: new}, indent=1, sort_keys=True) + "\n"
        files.write(path(), text.encode())


class Change(NamedTuple):
    """A value that is as we set it.

    + what: how people call it; + value: that writes what it was, None for the line in /etc/hosts
    """

    key: str
    what: str
    was: Any
    value: Optional[host_values.Value]


def changes(roots: Roots) -> List[Change]:
    """What can be put back: not what somebody changed since, nor what a boot has undone. Limits before the mode that
    keeps them."""
    found = []
    for key, item in sorted(read(roots).items(), reverse=True):
        if key == HOSTS:
            if line(roots) in (roots.text_or_none(host_values.HOSTS) or "").splitlines():
                what = "the line of {} in {}".format(os.uname().nodename, host_values.HOSTS)
                found.append(Change(key, what, None, None))
            continue
        value = value_of(roots, key, item["was"])
        if value and now(value) == item["set"]:
            found.append(Change(key, value.what, item["was"], value))
    return found


def line(roots: Roots) -> str:
    return host_values.LINE.format(os.uname().nodename).rstrip("\n")


def value_of(roots: Roots, key: str, was: Any) -> Optional[host_values.Value]:
    """The value with what it was as what is wanted; None of a card that is not there, or does not answer."""
    name, _, uuid = key.partition(".")
    if name in host_values.SYSCTLS:
        return host_values.of_kernel(roots, name, was)
    if name == "governor":
        return host_values.of_processor(roots, was)
    return host_cards.of_card(name, uuid, was)


def now(value: host_values.Value) -> Any:
    try:
        return value.read()
    except (host_values.Refused, OSError):
        return None


def undo(roots: Roots) -> List[str]:
    """Put back what can be; what could not be, a line each."""
    failed = []
    for change in changes(roots):
        if change.value is None:
            host_values.drop_from_hosts(roots, line(roots))
            continue
        _, why = host_values.settle(change.value)
        if why:
            failed.append("{} stays as it is until the next boot: {}".format(change.what, why))
    return failed
