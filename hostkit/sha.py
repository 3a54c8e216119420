"""sha256 of what is small, as each look needs it: hashlib brings OpenSSL, a third of python3's start."""

from __future__ import annotations

try:
    from _sha2 import sha256  # type: ignore[import-not-found]  # Python 3.12 and newer
except ImportError:
    try:
        from _sha256 import sha256  # type: ignore[import-not-found]
    except ImportError:  # a Python that was built with OpenSSL's alone
        from hashlib import sha256


def of(data: bytes) -> str:
    """In hex."""
    return str(sha256(data).hexdigest())
