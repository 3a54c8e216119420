"""Wheels that no package index has: by their own address, or from the owner's mirror of files."""

from __future__ import annotations

from pathlib import Path

from gpufleet.wheelhouse import mirror as mirrors
from gpufleet.wheelhouse.pack import WheelError
from hostkit.errors import Failure
from hostkit.fetch import fetch_file


def by_url(address: str, place: Path, sha256: str, mirror: str | None = None) -> Path:
    """The file of an address at `place`, checked by its sha256; a download that broke off goes on.

    + mirror: the setting `mirrors.files`
    Raises WheelError.
    """
    source = mirrors.of_file(address, place.name, mirror)
    try:
        fetch_file(source, str(place), sha256)
    except Failure as error:
        raise WheelError(
            f"{place.name}: {error.cause}. Look at `url` and `sha256` of the stack's page and at this machine's "
            "network, or set mirrors.files to a place that has the file."
        ) from error
    return place
