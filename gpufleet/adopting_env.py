"""Variables of a service that runs: which go into the entry, which the instance has of its own, which stay."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpufleet.adopting_item import PROXY, Item
from gpufleet.environment import CACHES
from gpufleet.flags import PREFIXES
from gpufleet.instance import Instance
from gpufleet.masking import is_secret

# What a login, systemd or a container runtime sets: it says nothing of how a model is served.
ORDINARY = re.compile(
    r"LANG|LANGUAGE|LC_\w+|USER|LOGNAME|USERNAME|SHELL|SHLVL|TERM\w*|COLORTERM|PWD|OLDPWD|_|HOSTNAME|TZ|MAIL|EDITOR|"
    r"PAGER|LESS\w*|LS_COLORS|PS1|INVOCATION_ID|JOURNAL_STREAM|SYSTEMD_\w+|MAINPID|MANAGERPID\w*|NOTIFY_SOCKET|"
    r"LISTEN_\w+|WATCHDOG_\w+|MEMORY_PRESSURE_\w+|XDG_\w+|DBUS_\w+|SSH_\w+|SUDO_\w+|\w+_DIRECTORY|CONDA_\w+|_CE_\w+|"
    r"VIRTUAL_ENV\w*|TMUX\w*|STY|WINDOW|HIST\w+|DISPLAY|WAYLAND_\w+|GPG_\w+|DEBIAN_\w+|PYENV_\w+|NVM_\w+|BASH_\w+|"
    r"PYTHONUNBUFFERED|TMPDIR"
)
# The instance has its own of these; nothing of the old ones counts.
PLACES = frozenset(["PATH", "HOME", *CACHES])
CARDS = frozenset(["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"])
BY_UUID = "cards are named by their UUIDs, in PCI order: an index means another card after a swap"
_HUB = re.compile(r"(HF|HUGGINGFACE|HUGGING_FACE|MODELSCOPE|VLLM_USE_MODELSCOPE)(_\w+)?")
# Variables that older versions had: what does the same now (0.24.0 and 0.27.1 do not know the first any more).
INSTEAD = {
    "VLLM_TORCH_COMPILE_LEVEL": 'compilation-config {"mode": 0}, or enforce-eager, does what its 0 did',
    "VLLM_USE_V1": "there is no other engine any more",
    "VLLM_ATTENTION_BACKEND": "the flag attention-backend does it now",
}


def entries(env: Mapping[str, str | None], planned: Instance) -> dict[str, str]:
    """The variables that the entry has to give, so that the instance has the old ones."""
    given: dict[str, str] = {}
    for name, value in env.items():
        if value is not None and _fate(name, value, planned) is None and planned.env.get(name) != value:
            given[name] = value
    return given


def _fate(name: str, value: str, planned: Instance) -> tuple[str, str] | None:
    """(kind, why) of a variable that no entry carries; None for one that it may."""
    if name in CARDS:
        return "changed", BY_UUID
    if name == "CUDA_HOME":
        return "changed", "the toolkit of the stack, beside the one that is there"
    if name == "LD_LIBRARY_PATH":
        stubs = "; stubs are for linking alone, and hide the driver at run time" if "stubs" in value else ""
        return "changed", f"of the stack's toolkit{stubs}"
    if name == "TORCH_CUDA_ARCH_LIST":
        return "changed", "of the instance's own cards"
    if name == "PYTHONPATH":
        own = " FlashQLA is a package of it." if _has(planned, "flash") and "flash" in value.lower() else ""
        return "changed", f"a path of one's own shadows packages of the runtime (GF509).{own}"
    if name == "LD_PRELOAD":
        return "left", "a library of the old setup is not put before the runtime's; give it in `env` if it is needed"
    if name in PLACES or ORDINARY.fullmatch(name):
        return "ordinary", ""
    if _HUB.fullmatch(name):
        return "changed", "the engine fetches nothing (HF_HUB_OFFLINE=1); what gpufleet fetches goes by mirrors.hub"
    table, engine = planned.stack.table, planned.stack.engine
    if name.startswith(tuple(prefix for kind, prefix in PREFIXES.items() if kind != engine)):
        return "changed", "of another engine: it does nothing here"
    if table is not None and table.owns(name) and not table.knows_variable(name):
        more = f"; {INSTEAD[name]}" if name in INSTEAD else ""
        return "left", f"{planned.stack.flags or engine} does not know it, so that it does nothing{more}"
    return None


def _has(planned: Instance, word: str) -> bool:
    return any(word in source.name for source in planned.stack.sources)


def items(env: Mapping[str, str | None], by_hand: bool, final: Instance) -> Iterator[Item]:
    """What is said of each variable, the instance's own among them.

    + by_hand: of a process with a login's variables, of which the names that mean nothing here are not told
    """
    for name, value in env.items():
        key, new = f"env.{name}", final.env.get(name)
        if value is None:
            yield from _untold(name, by_hand)
            continue
        fate = _fate(name, value, final)
        source = final.because.get(key, "")
        if fate is not None and fate[0] == "ordinary":
            continue
        if new == value:
            yield Item("entry" if "serve entry" in source else "default", key, value, new, source)
        elif fate is not None:
            yield Item("left" if fate[0] == "left" else "changed", key, value, new, fate[1])
        else:
            yield Item("changed", key, value, new, source)
    for name, value in final.env.items():
        if name not in env and name not in PLACES and name != "CUDA_DEVICE_ORDER":
            why = BY_UUID if name in CARDS else final.because.get(f"env.{name}", "")
            yield Item("added", f"env.{name}", None, value, why)


def _untold(name: str, by_hand: bool) -> Iterator[Item]:
    """A variable whose value stayed on the box."""
    if is_secret(name, anywhere=True):
        hub = bool(_HUB.fullmatch(name))
        why = "the engine fetches nothing; its value was not read off the box" if hub else PROXY
        yield Item("left", f"env.{name}", "<hidden>", None, why)
    elif not by_hand and not ORDINARY.fullmatch(name):
        why = "it is none of the engine's, and its value was not read off the box: give it in `env` if it is needed"
        yield Item("left", f"env.{name}", "<not read>", None, why)
