"""What must hold before a run begins: what is refused, and what is put in place of pyinfra's own ways."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import operations.greenlets  # noqa: F401
import click
import pyinfra_cli.cli
from pyinfra.context import ctx_config, ctx_state
from pyinfra_cli.exceptions import UnexpectedExternalError
from pyinfra_cli.util import parse_cli_arg

from gpufleet import address, inventory, terminal
from gpufleet.errors import WRONG, ConfigError, nearest
from gpufleet.fleet import Fleet
from gpufleet.inventory import SSH_KEYS
from gpufleet.layers import checked
from gpufleet.settings import Settings
from operations import discovery, ending, keep_byte_code, order, transport
from operations.callbacks import Callbacks
from operations.contact import keep_failures_apart
from operations.run import Stop, session

# Options of pyinfra that a fleet's run cannot do with, and why.
REFUSED = (
    ("serial", "its order is random and it goes on past a failed box"),
    ("no_wait", "it hides failures"),
    ("retry", "a release that failed its gate would be given a second outage; what is worth it is tried again anyway"),
)
_installed: list[bool] = []


def install() -> None:
    """Called by config.py, before pyinfra reads the inventory. Refuses what could not be safe; exit 2."""
    if _installed:
        return
    _installed.append(True)
    keep_byte_code()
    terminal.outlive_readers()
    params = click.get_current_context().params
    session.dry = bool(params.get("dry"))
    session.asks = not any(params.get(option) for option in ("yes", "dry", "json_output"))
    for option, why in REFUSED:
        if params.get(option):
            raise Stop(f"--{option.replace('_', '-')} is not for fleets: {why}. Leave it out", WRONG)
    wanted = str(params.get("inventory") or "")
    if wanted.endswith(".py") and not Path(wanted).is_file():
        raise Stop(f"there is no inventory {wanted}: give the path of a file such as inventory/home.py", WRONG)
    if int(params.get("parallel") or 0) < 0:
        raise Stop("--parallel is a number of boxes: 1 or more, or leave it out for all at once", WRONG)
    pages = [str(name) for name in params.get("operations") or () if str(name).endswith(".py")]
    if len(pages) > 1:  # twice the same would switch each box twice; another inventory would be run as a deploy
        raise Stop(f"a run has one inventory and one deploy file, not {', '.join(pages)}: run each by itself", WRONG)
    deploys = all(str(name).endswith(".py") for name in params.get("operations") or ())
    if deploys and not (params.get("yes") or params.get("dry") or params.get("json_output") or sys.stdin.isatty()):
        raise Stop("there is no terminal to confirm the changes in: add -y, or --dry to see them only", WRONG)
    session.deploys, session.limit, session.exclude = deploys, _words(params, "limit"), _words(params, "exclude")
    if not params.get("debug_all"):
        logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # why a box is not there is said once, by us
    ending.install()
    _keep_overrides(wanted)
    keep_failures_apart()
    transport.install()
    order.install()
    discovery.connect_once()
    inventory.before_connect.append(_before_connect)


def installed() -> bool:
    return bool(_installed)


def _keep_overrides(wanted: str) -> None:
    """What --data, --ssh-user, --ssh-password-prompt and the like come to, as pyinfra hands it to the inventory.

    An inventory that hands no boxes to gpufleet is refused when it was read; what one raises is said in a line.
    """
    original = pyinfra_cli.cli.make_inventory

    def make_inventory(*args: Any, **kwargs: Any) -> Any:
        session.overrides = dict(kwargs.get("override_data") or {})
        try:
            found = original(*args, **kwargs)
        except (UnexpectedExternalError, SyntaxError, ValueError, OSError) as error:
            if not wanted.endswith(".py"):
                raise
            raise Stop(inventory.raised(Path(wanted), getattr(error, "exception", error)), WRONG) from error
        if session.deploys and session.fleet is None and wanted.endswith(".py"):
            raise Stop(inventory.no_inventory(Path(wanted)), WRONG)
        return found

    pyinfra_cli.cli.make_inventory = make_inventory


def _before_connect(fleet: Fleet) -> None:
    params = click.get_current_context().params
    _check_data(params.get("data") or ())
    _check_address(session.overrides)
    config = ctx_config.get()
    if params.get("fail_percent") is None:
        # Without -y pyinfra would stop at the first failed box and ask; the others are to finish.
        config.FAIL_PERCENT = None
    state = ctx_state.get()
    original = state.init

    def init(*args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        state.add_callback_handler(Callbacks())

    state.init = init
    if tuple(params.get("operations") or ())[:1] == ("debug-inventory",):
        fleet.select(session.limit, session.exclude)  # it connects to nothing
    else:
        discovery.meet(fleet, session.limit, session.exclude, session.overrides, config)
    session.fleet = fleet


def _words(params: Mapping[str, Any], option: str) -> list[str]:
    return [str(word) for word in params.get(option) or ()]


def _check_data(given: Iterable[str]) -> None:
    """Raises ConfigError when --data has a key that is neither a setting nor pyinfra's."""
    known = SSH_KEYS | set(Settings.model_fields)
    unknown = [item.split("=", 1)[0] for item in given if item.split("=", 1)[0] not in known]
    if unknown:
        raise ConfigError(f"--data: unknown key {key!r}{nearest(key, known)}" for key in unknown)
    values = {key: parse_cli_arg(value) for key, _, value in (item.partition("=") for item in given)}
    checked({key: value for key, value in values.items() if key in Settings.model_fields}, "--data")


def _check_address(overrides: Mapping[str, Any]) -> None:
    """Raises ConfigError when --ssh-port, --ssh-user or --data gives all boxes what can be no port or user."""
    if wrong := list(address.problems(overrides)):
        raise ConfigError(f"the command line: {problem}" for problem in wrong)
