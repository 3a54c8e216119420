"""Taking secrets out of what is written down."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

HIDDEN = "***"
LOGIN = re.compile(r"(?<=://)[^/@\s\"']+@")  # user and password in an address
SHORT = 6  # characters: what is shorter is hidden as a word of its own only, since `1` or `any` is in many others


def redacted(value: Any, secrets: Collection[str]) -> Any:
    """The same value of JSON, with HIDDEN in place of each secret in any text; keys of mappings stay."""
    words = sorted({word for text in secrets for word in (text, *text.splitlines()) if word.strip()}, key=len)
    patterns = [re.escape(word) if len(word) >= SHORT else rf"(?<!\w){re.escape(word)}(?!\w)" for word in words[::-1]]
    return _in(value, re.compile("|".join(patterns)) if patterns else None)


def _in(value: Any, pattern: re.Pattern[str] | None) -> Any:
    if isinstance(value, dict):
        return {key: _in(item, pattern) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_in(item, pattern) for item in value]
    if isinstance(value, str):
        return LOGIN.sub(f"{HIDDEN}@", pattern.sub(HIDDEN, value) if pattern else value)
    return value
