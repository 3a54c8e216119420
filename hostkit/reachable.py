"""Whether addresses answer, by a HEAD request each, many at once: nothing is fetched."""

from __future__ import annotations

import http.client
import socket
import ssl
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Mapping, Optional, Sequence

SECONDS = 8.0
AT_ONCE = 16


def ask(urls: Sequence[str], proxies: Optional[Mapping[str, str]] = None, seconds: float = SECONDS) -> dict:
    """{url: {"status": of HTTP or None, "kind": of failure or None, "said"}}.

    kind: `name` (it does not resolve), `certificate`, `time` (no answer within the limit), `connection`, `address`
    + proxies: {scheme: url}; without it the environment's
    """
    known = list(dict.fromkeys(urls))
    if not known:
        return {}
    with ThreadPoolExecutor(min(AT_ONCE, len(known))) as pool:
        asked = {url: pool.submit(one, url, proxies, seconds) for url in known}
        return {url: answer.result() for url, answer in asked.items()}


def one(url: str, proxies: Optional[Mapping[str, str]] = None, seconds: float = SECONDS) -> dict:
    given = urllib.request.ProxyHandler(dict(proxies)) if proxies else urllib.request.ProxyHandler()
    opener = urllib.request.build_opener(given)
    try:
        # some servers tell robots that name no program nothing
        request = urllib.request.Request(url, method="HEAD", headers={"User-Agent": "gpufleet"})
        with opener.open(request, timeout=seconds) as answer:
            return told(answer.status)
    except urllib.error.HTTPError as error:
        return told(error.code)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return failed(error)


def told(status: int) -> dict:
    return {"status": status, "kind": None, "said": None}


def failed(error: Exception) -> dict:
    reason = getattr(error, "reason", error)
    reason = reason if isinstance(reason, Exception) else error
    said = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    if isinstance(reason, socket.gaierror):
        kind = "name"
    elif isinstance(reason, ssl.SSLCertVerificationError):
        kind, said = "certificate", reason.verify_message
    elif isinstance(reason, (socket.timeout, TimeoutError)):
        kind = "time"
    elif isinstance(reason, (ValueError, http.client.InvalidURL)):
        kind = "address"
    else:
        kind = "connection"
    return {"status": None, "kind": kind, "said": str(said)}
