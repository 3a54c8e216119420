"""The fingerprints in an OpenPGP public key file, without gpg, which a bare box does not have (RFC 4880, 9580)."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Iterator, Set, Tuple

PUBLIC_KEY = 6


def fingerprints(data: bytes) -> Set[str]:
    """Fingerprints (hex, upper case) of all primary public keys in a key file, armoured or binary.

    An empty set when there is none. Only version 4 keys are counted: apt's are; any other primary key is named
    `UNKNOWN`, so that a file with one more key than expected never passes for the expected one.
    """
    found = set()
    for tag, body in packets(dearmor(data)):
        if tag == PUBLIC_KEY:
            if body[:1] == b"\x04":
                prefix = b"\x99" + len(body).to_bytes(2, "big")
                found.add(hashlib.sha1(prefix + body).hexdigest().upper())
            else:
                found.add("UNKNOWN")
    return found


def dearmor(data: bytes) -> bytes:
    if b"-----BEGIN PGP PUBLIC KEY BLOCK-----" not in data:
        return data
    binary = b""
    for block in data.split(b"-----BEGIN PGP PUBLIC KEY BLOCK-----")[1:]:
        lines = block.split(b"-----END")[0].replace(b"\r", b"").split(b"\n")
        body = lines[lines.index(b"", 1) + 1 :] if b"" in lines[1:] else []
        try:
            binary += base64.b64decode(b"".join(line for line in body if not line.startswith(b"=")))
        except binascii.Error:
            return b""
    return binary


def packets(data: bytes) -> Iterator[Tuple[int, bytes]]:
    """(tag, body) of each packet; ends quietly at the first byte that is no packet."""
    at = 0
    while at < len(data):
        head = data[at]
        if not head & 0x80:
            return
        if head & 0x40:
            tag, first = head & 0x3F, data[at + 1] if at + 1 < len(data) else 0
            if first < 192:
                size, used = first, 2
            elif first < 224:
                size, used = ((first - 192) << 8) + data[at + 2] + 192, 3
            elif first == 255:
                size, used = int.from_bytes(data[at + 2 : at + 6], "big"), 6
            else:
                return
        else:
            tag, kind = (head >> 2) & 0x0F, head & 0x03
            if kind == 3:
                size, used = len(data) - at - 1, 1
            else:
                used = 1 + (1 << kind)
                size = int.from_bytes(data[at + 1 : at + used], "big")
        yield tag, data[at + used : at + used + size]
        at += used + size
