"""Secrets do not get onto a screen or into a report: they are shown as hidden.

What is one: the values that a run knows to be (its passwords, what an owner puts into the environment), those whose
name looks like one, logins in addresses, and tokens that are known by their form. A release should have none (rule
GF502), but an owner may have silenced that, or edited a file on the box; and engines print what they were started with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

HIDDEN, CHANGED = "<hidden>", "<hidden, changed>"
_MARKS = ("<hidden>", "<hidden", "<hidden, changed>")

_SHORT = 6  # characters: what is shorter is hidden as a word of its own only, since `1` or `any` is in many others
_PARTS = frozenset(
    ["key", "keys", "apikey", "token", "secret", "secrets", "password", "passwords", "passwd", "passphrase"]
    + ["credential", "credentials"]
)
_ENDS = ("password", "passwd", "apikey", "secret")  # of one word: PGPASSWORD, OPENAIAPIKEY
# Words of a tokenizer, which are no secret.
_TOKENS = re.compile(
    r"(?i)(eos|bos|pad|unk|sep|cls|mask|image|video|audio|stop|special|per|next|last|first)[-_]?token$"
)
_VALUE = r"\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'"
_VARIABLE = re.compile(
    r"(?m)^([ \t]*(?:export[ \t]+|Environment=\"?)?)([A-Za-z_]\w*)=(\"(?:[^\"\\]|\\.)*\"|'[^']*'|.*)$"
)
_YAML = re.compile(r"(?m)^([ \t]*[\"']?)([\w.-]+)[\"']?:([ \t]+\S.*|(?:[ \t]*\n[ \t]*-[ \t].*)+)$")
_WORD = re.compile(rf"([\"']?--)([\w-]+)[\"']?((?:[ \t]+(?![\"']?--)(?:{_VALUE}|[^\s\"'\\]\S*))+|=\S+)")
_PAIR = re.compile(
    rf"(?i)(?<![\w-])([\"']?)([a-z][\w-]*?(?:keys?|token|secrets?|passwords?|passwd|passphrase|credentials?)|token|keys?|secrets?|password)"
    rf"(?![\w-])[\"']?(?:[ \t]*[:=][ \t]*)(\[[^\]\n]*\]|{_VALUE}|(?<==)[^\s,;)}}]+)"
)
_LOGIN = re.compile(r"(?<=://)[^/@\s\"']+@")  # user and password in an address
_KNOWN = re.compile(r"\b(?:hf_|sk-|ghp_|glpat-)[A-Za-z0-9_-]{16,}|\b[Bb]earer\s+[^\s\"']{8,}")


def is_secret(name: str, anywhere: bool = False) -> bool:
    """Whether a variable or flag looks like a secret by its name: `HF_TOKEN`, `api-key`; not `tokenizer`, `eos_token`.

    + anywhere: any part of the name counts, not only its last: of variables, which nobody else names
    """
    low = name.lower()
    parts = re.split(r"[-_.]", low)
    found = bool(_PARTS.intersection(parts if anywhere else parts[-1:])) or low.endswith(_ENDS)
    return found and not _TOKENS.search(name)


def text(line: str) -> str:
    """A line of a log, or of anything, without the secrets that can be told as such."""
    return login(_KNOWN.sub(HIDDEN, _hide(line, lambda *_: HIDDEN, (_WORD, _PAIR))))


def login(line: str) -> str:
    """The same line, with nobody's user and password in its addresses."""
    return _LOGIN.sub(f"{HIDDEN}@", line)


def document(value: Any, secrets: Collection[str] = ()) -> Any:
    """The same value of JSON without secrets in any text; keys of mappings stay.

    + secrets: what is known to be one, wherever it stands; of several lines each
    """
    words = sorted({word for given in secrets for word in (given, *given.splitlines()) if word.strip()}, key=len)
    patterns = [re.escape(word) if len(word) >= _SHORT else rf"(?<!\w){re.escape(word)}(?!\w)" for word in words[::-1]]
    return _in(value, re.compile("|".join(patterns)) if patterns else None)


def _in(value: Any, known: re.Pattern[str] | None) -> Any:
    if isinstance(value, Mapping):
        return {key: _in(item, known) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_in(item, known) for item in value]
    if isinstance(value, str):
        return text(known.sub(HIDDEN, value) if known else value)
    return value


def pair(before: str, after: str) -> tuple[str, str]:
    """Two versions of a file of a release, without secrets; of one whose value is another now it is said that it is."""
    seen: dict[str, list[str]] = {}

    def note(name: str, value: str) -> str:
        seen.setdefault(name, []).append(value)
        return HIDDEN

    def compare(name: str, value: str) -> str:
        return HIDDEN if value in seen.get(name, [value]) else CHANGED

    patterns = (_VARIABLE, _YAML, _WORD, _PAIR)
    old, new = _hide(before, note, patterns), _hide(after, compare, patterns)
    return _KNOWN.sub(HIDDEN, old), _KNOWN.sub(HIDDEN, new)


def _hide(source: str, mark: Callable[[str, str], str], patterns: tuple[re.Pattern[str], ...]) -> str:
    for pattern in patterns:

        def hidden(found: re.Match[str], anywhere: bool = pattern is _VARIABLE) -> str:
            value = found[3].strip().strip("\"'")
            if not is_secret(found[2], anywhere) or value in ("", *_MARKS):
                return found[0]
            lead = re.match(r"[=\s]*", found[3])
            start = found.start(3) - found.start() + (lead.end() if lead else 0)
            return found[0][:start] + mark(found[2], value)

        source = pattern.sub(hidden, source)
    return source
