"""HTTP's answer to a request for a file, whole or from where an earlier download broke off.

Shared by a box's store (hostkit.serve) and the lab's file server.
"""

from __future__ import annotations

import os
import re
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import BinaryIO, Optional, Tuple


def parse_range(header: Optional[str], size: int) -> Optional[Tuple[int, int]]:
    """First byte and length of a single-range header; None when the whole file is to be sent.

    Raises ValueError when nothing of the file lies in the range.
    """
    wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", header or "")
    if wanted is None or wanted.groups() == ("", ""):
        return None
    first, last = wanted.groups()
    if first == "":
        length = min(int(last), size)
        start = size - length
    else:
        start = int(first)
        length = (min(int(last), size - 1) if last else size - 1) - start + 1
    if start >= size or length <= 0:
        raise ValueError(header)
    return start, length


def answer(request: BaseHTTPRequestHandler, file: BinaryIO, content_type: str, body: bool) -> None:
    """Send what the request wants of the file; without `body` its headers only."""
    status = os.fstat(file.fileno())
    try:
        part = parse_range(request.headers.get("Range"), status.st_size)
    except ValueError:
        request.send_error(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
        return
    start, length = part or (0, status.st_size)
    request.send_response(HTTPStatus.PARTIAL_CONTENT if part else HTTPStatus.OK)
    request.send_header("Content-Type", content_type)
    request.send_header("Content-Length", str(length))
    request.send_header("Accept-Ranges", "bytes")
    request.send_header("Last-Modified", request.date_time_string(int(status.st_mtime)))
    if part:
        request.send_header("Content-Range", "bytes {}-{}/{}".format(start, start + length - 1, status.st_size))
    request.end_headers()
    if body and length:
        request.wfile.flush()
        request.connection.sendfile(file, start, length)
