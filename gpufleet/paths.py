"""Where the product's own files are: catalogues, patches, locks, templates."""

from __future__ import annotations

import os
from pathlib import Path

from gpufleet.errors import ConfigError

PACKAGE = Path(__file__).resolve().parent
ROOT = "/opt/gpufleet"  # on a box

# Inventories by their own path, as the caller of this command wrote them: it has gone to the fleet's folder since.
_given: dict[Path, Path] = {}


def product_files() -> Path:
    """The folder `files/` of the repository, or the copy inside an installed wheel."""
    beside = PACKAGE.parent / "files"
    return beside if (beside / "stacks").is_dir() else PACKAGE / "_files"


def folder_of(inventory: Path) -> Path:
    """The fleet's folder: the one that `inventory/` is in, or the file's own."""
    return inventory.parent.parent if inventory.parent.name == "inventory" else inventory.parent


def inventories(folder: Path) -> list[Path]:
    """The inventories of a fleet's folder, `home.py` first. + folder: it, or the one in it that they lie in"""
    within = folder if folder.name == "inventory" else folder / "inventory"
    found = sorted(within.glob("*.py"), key=lambda path: (path.name != "home.py", path.name))
    return [path for path in found if not path.name.startswith((".", "_"))]


def deploy_page() -> Path:
    """The product's deploy.py: beside `files/` in the repository, in the copy of it inside an installed wheel."""
    files = product_files()
    return (files if files.parent == PACKAGE else files.parent) / "deploy.py"


def given(inventory: Path, as_written: Path) -> None:
    """Remember how the caller wrote an inventory's path."""
    _given[inventory] = as_written


def as_given(inventory: Path) -> Path:
    """An inventory's path in a command that works where the caller is: as it was written, or from the root."""
    return _given.get(inventory, inventory)


def stack_folders(owner: Path | None = None) -> list[Path]:
    """Folders with stacks, weakest first: an owner's entry wins over the product's of the same name."""
    return _folders("stacks", owner)


def model_folders(owner: Path | None = None) -> list[Path]:
    """Folders with models, weakest first."""
    return _folders("models", owner)


def _folders(kind: str, owner: Path | None) -> list[Path]:
    folders = [product_files() / kind]
    if owner is not None and (owner / "files" / kind).resolve() != folders[0].resolve():
        folders.append(owner / "files" / kind)
    return [folder for folder in folders if is_folder(folder)]


def is_folder(path: Path) -> bool:
    """Whether a folder is there that need not be. Raises ConfigError for one that cannot be read, and for a file: what
    is in it would be left out without a word."""
    try:
        os.scandir(path).close()
    except FileNotFoundError:
        if path.is_symlink():
            raise ConfigError([f"{path} is a link that leads nowhere: mend it, or take it away"]) from None
        return False
    except NotADirectoryError:
        if path.parent.is_dir():
            raise ConfigError([f"{path} is a file: it must be a folder; rename the file"]) from None
        return False
    except OSError as error:
        raise ConfigError([unreadable(path, error)]) from None
    return True


def unreadable(path: Path | str, error: OSError) -> str:
    """Why a file or folder cannot be read, and what to do."""
    if isinstance(error, PermissionError):
        mend = "call this as the user that it belongs to, or let this one read it: chmod -R a+rX"
        return f"{path} cannot be read: permission denied; {mend} {path}"
    return f"{path} cannot be read: {error.strerror or error}; mend that, or take it away"
