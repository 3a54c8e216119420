"""What wheels install, by their file names alone."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.utils import parse_wheel_filename


def versions(filenames: Iterable[str]) -> dict[str, str]:
    """{distribution: version} that these wheels install. Raises ValueError for a file that is no wheel."""
    found = (parse_wheel_filename(name) for name in filenames)
    return {str(name): str(version) for name, version, _, _ in found}
