"""`gpufleet deploy`: pyinfra with deploy.py, in the fleet's folder."""

from __future__ import annotations

from pathlib import Path

import click

from gpufleet.commands.folder import Wrong, enter
from gpufleet.commands.instead import Instead


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("inventory", type=click.Path(path_type=Path))
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def deploy(inventory: Path, options: tuple[str, ...]) -> None:
    """Bring the boxes of INVENTORY to what they should be; OPTIONS are pyinfra's (-y, --dry, --limit BOX, …).

    Runs deploy.py of the inventory's folder, from wherever it is called.

    Exit codes: 0 done or nothing to do; 1 a box failed or was left out; 2 the call or the configuration is wrong,
    nothing was touched; 3 a rule refused the run, nothing was touched; 4 another deploy has the fleet's lock; 5 --dry
    found something to change; 130 interrupted.
    """
    path = enter(inventory)
    missing = [name for name in ("deploy.py", "config.py") if not Path(name).is_file()]
    if missing:
        raise Wrong(f"{Path.cwd()} has no {' and no '.join(missing)}: `gpufleet init DIR` makes a folder that has them")
    raise Instead([*options, str(path), "deploy.py"])
