"""The owner's inventory: boxes in, pyinfra groups by trait out; everything in it is checked before any connection."""

from __future__ import annotations

import re
import runpy
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpufleet import address as addresses
from gpufleet import catalogue, known, owners_groups, paths, ssh_config
from gpufleet.catalogue import Catalogue
from gpufleet.errors import WRONG, ConfigError, nearest
from gpufleet.fleet import Fleet
from gpufleet.layers import Layer, checked, load_group_data
from gpufleet.models import Model
from gpufleet.patches import PatchError
from gpufleet.plan import Box
from gpufleet.runtime import Runtime
from gpufleet.settings import Settings
from gpufleet.stacks import Stack

# What pyinfra's SSH connector takes from a host's data (pyinfra 3.10).
SSH_KEYS = frozenset(
    [
        "ssh_hostname",
        "ssh_port",
        "ssh_user",
        "ssh_password",
        "ssh_key",
        "ssh_key_password",
        "ssh_allow_agent",
        "ssh_look_for_keys",
        "ssh_forward_agent",
        "ssh_config_file",
        "ssh_known_hosts_file",
        "ssh_paramiko_connect_kwargs",
        "ssh_connect_retries",
        "ssh_connect_retry_min_delay",
        "ssh_connect_retry_max_delay",
        "ssh_file_transfer_protocol",
        "_sudo_password",
    ]
)
NAME = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?$")
_KINDS = {int: "a number", str: "a text"}

# The fleet that the running command works on, and what is to be done with it before pyinfra connects.
_current: list[Fleet] = []
before_connect: list[Callable[[Fleet], None]] = []


def current() -> Fleet:
    """The fleet that the inventory of this run defined. Raises ConfigError when it used no `by_traits`."""
    if not _current:
        raise ConfigError(["the inventory does not call gpufleet.inventory.by_traits: see inventory/home.py"])
    return _current[-1]


def by_traits(boxes: Sequence[Any], models: Iterable[str | Path] = ()) -> dict[str, list[Any]]:
    """The groups of an inventory file: `globals().update(by_traits(boxes))`.

    + boxes: (name, data) for each box; data are `ssh_…` keys of pyinfra and settings
    + models: further folders with pages of models, beside the product's and the owner's files/models

    What is wrong is printed, a line each, and the program ends with 2 before any connection.
    """
    frame = sys._getframe(1)
    source = Path(frame.f_code.co_filename).resolve()
    try:
        fleet = load(boxes, source, [Path(folder) for folder in models], frame.f_globals, frame.f_lineno)
        check_directory(fleet)
        _current[:] = [fleet]
        for hook in before_connect:
            hook(fleet)
    except ConfigError as error:
        for problem in error.problems:
            print(f"gpufleet: {problem}", file=sys.stderr)
        raise SystemExit(WRONG) from None
    return fleet.groups()


def from_file(path: Path) -> Fleet:
    """The fleet of an inventory file, run outside pyinfra as pyinfra runs it: in its fleet's folder, hooks included.

    Raises ConfigError when it cannot be run; SystemExit once `by_traits` has said what is wrong in it.
    """
    _current.clear()
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # an inventory may import what lies beside deploy.py
    try:
        runpy.run_path(str(path))
    except ConfigError:
        raise
    except SystemExit as error:
        if error.code == WRONG:  # `by_traits` has said why
            raise
        raise ConfigError([f"{path}: it ends the program itself, with {error.code}; take that out"]) from error
    except Exception as error:  # an owner's file can raise anything
        raise ConfigError([raised(path, error)]) from error
    if not _current:
        raise ConfigError([no_inventory(path)])
    return current()


def raised(path: Path, error: Exception) -> str:
    """What an inventory's own code raised, with the last line of that file on the way there."""
    if isinstance(error, PermissionError):
        return paths.unreadable(error.filename or path, error)
    where, trace = str(path), error.__traceback__
    while trace is not None and not isinstance(error, SyntaxError):  # which says its line itself
        if trace.tb_frame.f_code.co_filename == str(path):
            where = f"{path}: line {trace.tb_lineno}"
        trace = trace.tb_next
    said = f"{where}: {type(error).__name__}: {error}"
    with suppress(OSError):
        if b"by_traits" not in path.read_bytes():
            of_pyinfra = path.name in ("deploy.py", "config.py")  # whose errors here say nothing
            return no_inventory(path) if of_pyinfra else f"{said}; {no_inventory(path)}"
    return said


def no_inventory(path: Path) -> str:
    """That a file does not hand its boxes to gpufleet, and which one does."""
    others = [paths.as_given(each) for each in paths.inventories(Path.cwd()) if each != path.resolve()]
    mend = f"give {' or '.join(map(str, others))}" if others else "`gpufleet init DIR` makes a folder with one"
    return f"{paths.as_given(path.resolve())} is no inventory: it does not call gpufleet.inventory.by_traits; {mend}"


def check_directory(fleet: Fleet) -> None:
    """Raises ConfigError from another directory, where pyinfra would find neither group_data nor config.py."""
    if Path.cwd().resolve() != fleet.root:
        raise ConfigError(
            [f"run this in {fleet.root}, or with --chdir {fleet.root}: the working directory is {Path.cwd()}"]
        )


def load(
    boxes: Sequence[Any],
    source: Path,
    model_folders: Sequence[Path] = (),
    names: Mapping[str, Any] | None = None,
    after: int = 0,
) -> Fleet:
    """Check an inventory and everything around it, without a connection. Raises ConfigError with all that is wrong.

    + names: what the file has assigned so far, in which groups may be that its text alone does not show
    + after: the line in which it calls `by_traits`
    """
    if not isinstance(boxes, Sequence) or isinstance(boxes, str | bytes):
        example = '[("name", {"ssh_hostname": "192.168.1.11"})]'
        line = f": line {after}" if after else ""
        raise ConfigError([f"{source.name}{line}: by_traits takes a list of boxes, {example}, not {boxes!r}"])
    assigned = names or {}
    by_hand = owners_groups.own(source, assigned, boxes, after)
    root = paths.folder_of(source)
    shown = str(source.relative_to(root))
    problems: list[str] = []
    stacks = catalogue.load(Stack, "stack", paths.stack_folders(root))
    models = catalogue.load(Model, "model", [*paths.model_folders(root), *model_folders])
    fleet = Fleet(root, source, {}, {}, {}, stacks, models)
    problems += [
        f"{shown}: by_traits(…, models=…) names {folder}, and there is no such folder; correct it, or take it out"
        for folder in model_folders
        if not paths.is_folder(folder)
    ]
    problems += incomplete(stacks)
    for item in boxes:
        try:
            _add(fleet, item, shown, by_hand)
        except ConfigError as error:
            problems += error.problems
    if not boxes:
        problems.append(f'{shown}: there is no box in it; add one: ("name", {{"ssh_hostname": "192.168.1.11"}})')
    called = [item[0] for item in boxes if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)]
    wrong = owners_groups.problems(by_hand, assigned, boxes, called, source.stem)
    problems += [f"{shown}: {problem}" for problem in wrong]
    groups = set(by_hand) | {source.stem, "all", "fleet"}
    try:
        folders = list(dict.fromkeys([root / "group_data", source.parent / "group_data"]))
        fleet.layers = load_group_data(folders, groups, root, called)
    except ConfigError as error:
        problems += error.problems
    problems += _unknown_names(fleet) + _same_address(fleet, shown)
    if problems:
        raise ConfigError(problems)
    fleet.facts = known.read_all(fleet.facts_folder, fleet.boxes)
    return fleet


def _add(fleet: Fleet, item: Any, shown: str, groups: Mapping[str, list[str]]) -> None:
    name, data = item if isinstance(item, tuple) and len(item) == 2 else (item, {})
    if not isinstance(name, str) or not isinstance(data, Mapping):
        raise ConfigError([f'{shown}: {item!r} is no box; write ("name", {{"ssh_hostname": …, "serve": […]}})'])
    where = f"{shown}: box {name}"
    if not NAME.fullmatch(name):
        long = f", at most 63 of them: this has {len(name)}" if len(name) > 63 else ""
        raise ConfigError([f"{where}: a name is letters, digits, dots and dashes{long}"])
    if why := owners_groups.made(name, fleet.inventory.stem):
        raise ConfigError([f"{where}: give it another name: {why}"])
    if name in fleet.boxes:
        raise ConfigError([f"{where} is there twice"])
    unknown = [key for key in data if key not in SSH_KEYS and key not in Settings.model_fields]
    if unknown:
        known = SSH_KEYS | set(Settings.model_fields)
        raise ConfigError(f"{where}: unknown key {key!r}{nearest(key, known)}" for key in unknown)
    address = {key: value for key, value in data.items() if key in SSH_KEYS}
    for key, kind in {"ssh_port": int, "ssh_hostname": str, "ssh_user": str, "ssh_key": str}.items():
        if key in address and not isinstance(address[key], kind):
            raise ConfigError([f"{where}: {key} is {address[key]!r}; it must be {_KINDS[kind]}"])
    if wrong := list(addresses.problems(address)):
        raise ConfigError(f"{where}: {problem}" for problem in wrong)
    settings = checked({key: value for key, value in data.items() if key not in SSH_KEYS}, where)
    if not address.get("ssh_hostname") and not _resolves(name, address.get("ssh_config_file")):
        raise ConfigError([f"{where} has no address: add ssh_hostname, or a Host {name} to your ssh config"])
    member = tuple(group for group, names in groups.items() if name in names)
    fleet.addresses[name] = address
    fleet.boxes[name] = Box(name, settings, ("fleet", *member, fleet.inventory.stem), where)


def _resolves(name: str, config: Any) -> bool:
    """Whether ssh would find an address for a bare name: in the box's or the user's ssh config, or by the resolver."""
    with suppress(RuntimeError):  # a user without a home
        file = Path(config).expanduser() if isinstance(config, str) else Path.home() / ".ssh" / "config"
        if ssh_config.leads(name, file):
            return True
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return False
    return True


def incomplete(stacks: Catalogue[Stack]) -> list[str]:
    """Stacks whose lock, patches or table of flags are not there or not readable, a line each."""
    problems = []
    for stack in stacks.values():
        try:
            stack.table  # noqa: B018 - it is read from a file
            for python in stack.python:
                Runtime(stack, python).name  # noqa: B018 - it is made of all of them
        except ConfigError as error:
            problems += [f"stacks/{stack.name}.yaml: {problem}" for problem in error.problems]
        except OSError as error:
            problems.append(f"stacks/{stack.name}.yaml: {_unreadable(stack, error)}")
        except (ValueError, PatchError) as error:
            problems.append(f"stacks/{stack.name}.yaml: {error}")
    return problems


def _unreadable(stack: Stack, error: OSError) -> str:
    """A file that a page names, why it cannot be read, and what to do."""
    path = Path(error.filename or "")
    mend = "put it there, or correct the page"
    if path.parent.name == "locks":
        mend = f"make it with `gpufleet stacks lock {stack.name}`, or correct `lock` and `python` of the page"
    return f"{path}: {error.strerror}; {mend}"


def _unknown_names(fleet: Fleet) -> list[str]:
    """Stacks and models that some layer or box names and no catalogue has."""
    problems: list[str] = []
    layers = [layer for found in fleet.layers.values() for layer in found]
    layers += [Layer(box.source, box.data) for box in fleet.boxes.values()]
    for layer in layers:
        entries = [{"model": item} if isinstance(item, str) else item for item in layer.values.get("serve", [])]
        named_stacks = [layer.values.get("stack"), *[entry.get("stack") for entry in entries]]
        for stack in filter(None, named_stacks):
            problems += _problems(fleet.stacks, stack, layer.source)
        for entry in entries:
            problems += _problems(fleet.models, entry["model"], layer.source)
    return problems


def _same_address(fleet: Fleet, shown: str) -> list[str]:
    """Two names for one address: each would retire what the other serves."""
    seen: dict[tuple[str, int], str] = {}
    problems = []
    for name, data in fleet.addresses.items():
        place = (str(data.get("ssh_hostname") or name), data.get("ssh_port") or 22)
        if place in seen and not data.get("ssh_config_file"):
            problems.append(f"{shown}: {seen[place]} and {name} have the same address {place[0]}; keep one of them")
        seen[place] = name
    return problems


def _problems(known: Catalogue[Any], name: str, where: str) -> list[str]:
    try:
        known.find(name, where)
    except ConfigError as error:
        return error.problems
    return []
