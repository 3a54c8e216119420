"""Addresses as an owner's mirrors have them."""

from __future__ import annotations

from urllib.parse import urlsplit


def of_git(address: str, mirror: str | None) -> str:
    """A repository's address with `{path}` of the mirror filled in: `owner/name`.

    + mirror: the setting `mirrors.git`, such as `http://192.168.1.5/git/{path}`; None: the address as it is
    """
    if mirror is None:
        return address
    path = urlsplit(address).path.strip("/").removesuffix(".git")
    return mirror.replace("{path}", path)


def of_file(address: str, filename: str, mirror: str | None) -> str:
    """A file's address with `{filename}` of the mirror filled in.

    + mirror: the setting `mirrors.files`, such as `http://192.168.1.5/files/{filename}`; None: the address as it is
    """
    return address if mirror is None else mirror.replace("{filename}", filename)
