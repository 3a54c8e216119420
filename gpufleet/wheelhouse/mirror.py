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


def of_model(address: str | None, mirror: str | None) -> str | None:
    """The address below which a model's files are, with `{path}` of the mirror filled in: the address's own path.

    + address: `source.http` of the model's page; None for a model that is on the box, which no mirror concerns
    + mirror: the setting `mirrors.models`, such as `http://192.168.1.5/models/{path}`; None: the address as it is
    """
    if address is None or mirror is None:
        return address
    return mirror.replace("{path}", urlsplit(address).path.lstrip("/"))
