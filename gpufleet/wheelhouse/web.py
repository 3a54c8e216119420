"""How the controller asks servers: by the environment's proxies and authorities, with an address's own login."""

from __future__ import annotations

import base64
import os
import re
import ssl
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from gpufleet.wheelhouse.items import FetchError
from hostkit import fetch

MEND = (
    "Mend that in the settings mirrors.pypi and mirrors.torch, in torch_index of the stack's page, or in pip's settings"
)


def split(url: str) -> SplitResult:
    """An address in parts. Raises FetchError for what is none; the error shows no password."""
    try:
        return urlsplit(url)
    except ValueError as error:
        raise FetchError(f"{re.sub('//[^/]*@', '//', url)} is no address: {error}. {MEND}.") from None


def without_login(url: str) -> str:
    """The address as it may be shown and kept."""
    parts = split(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def login(url: str) -> tuple[str, str] | None:
    """(host with port, the header that logs in there) of an address like `https://user:password@host/simple`."""
    parts = split(url)
    who, at, place = parts.netloc.rpartition("@")
    if not at:
        return None
    return place, "Basic " + base64.b64encode(unquote(who).encode()).decode()


def authorities() -> ssl.SSLContext | None:
    """Whom to trust, as pip is told to (PIP_CERT); None: as Python does, by SSL_CERT_FILE or the system's."""
    given = os.environ.get("PIP_CERT")
    if not given:
        return None
    folder = os.path.isdir(given)  # noqa: PTH112
    try:
        return ssl.create_default_context(cafile=None if folder else given, capath=given if folder else None)
    except OSError as error:
        raise FetchError(f"PIP_CERT names {given}: {error}. Name a file or folder of certificates there.") from error


class _Logins(urllib.request.BaseHandler):
    """Adds the login of a host, also after a redirect, and never that of another one."""

    def __init__(self, logins: Mapping[str, str]) -> None:
        self.logins = logins

    def http_request(self, request: urllib.request.Request) -> urllib.request.Request:
        if header := self.logins.get(request.host):
            request.add_unredirected_header("Authorization", header)
        return request

    https_request = http_request


def opener(addresses: list[str]) -> fetch.Open:
    """What opens an address, knowing the logins that are in `addresses`. Raises FetchError."""
    logins = dict(found for address in addresses if (found := login(address)))
    context = authorities() or ssl.create_default_context()  # without one, each connection reads the system's anew
    director = urllib.request.build_opener(_Logins(logins), urllib.request.HTTPSHandler(context=context))

    def open_url(request: urllib.request.Request) -> Any:
        return director.open(request, timeout=fetch.TIMEOUT_SECONDS)

    return open_url
