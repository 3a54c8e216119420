"""What of a service's words and variables is a secret: it stays on the box. Names go out, values do not."""

from __future__ import annotations

import json
import re
from typing import Any, Iterable, Mapping

HIDDEN = "<hidden>"
SHORT = 6  # characters: a shorter secret is only looked for where its name stands, since `1` is in many others
_PARTS = frozenset(
    ["key", "keys", "apikey", "token", "secret", "secrets", "password", "passwords", "passwd", "passphrase"]
    + ["credential", "credentials"]
)
_ENDS = ("password", "passwd", "secret", "token", "apikey", "_key", "-key")  # PGPASSWORD, HFTOKEN
# Words of a tokenizer, which are no secret.
_TOKENS = re.compile(
    r"(?i)(eos|bos|pad|unk|sep|cls|mask|image|video|audio|stop|special|per|next|last|first)[-_]?token$"
)
_LOGIN = re.compile(r"(?<=://)[^/@\s\"']+@")  # user and password in an address
_KNOWN = re.compile(r"\b(?:hf_|sk-|ghp_|glpat-)[A-Za-z0-9_-]{16,}|\b[Bb]earer\s+[^\s\"']{8,}")
_LINE = re.compile(r"(?m)^([ \t]*)[\"']?([\w.-]+)[\"']?[ \t]*:[ \t]*(?=\S|$)")


def is_secret(name: str, anywhere: bool = False) -> bool:
    """Whether a variable or flag is a secret by its name: `HF_TOKEN`, `api-key`; not `tokenizer`, `eos_token`.

    + anywhere: any part of the name counts, not only its last: of variables
    """
    low = name.lower()
    parts = re.split(r"[-_.]", low)
    found = bool(_PARTS.intersection(parts if anywhere else parts[-1:])) or low.endswith(_ENDS)
    return found and not _TOKENS.search(name)


class Secrets:
    """What was found to be one, so that it is hidden wherever else it stands."""

    def __init__(self) -> None:
        self.values: set = set()

    def note(self, value: str) -> str:
        """Remember a secret; what is shown in its place."""
        self.values.add(value)
        return HIDDEN

    def words(self, words: Iterable[str]) -> list:
        """The words of a command line, without the values of secret flags, also inside of JSON."""
        found, secret = [], False
        for word in words:
            if word.startswith("--"):
                name, equals, value = word.partition("=")
                secret = is_secret(name)
                if secret and equals:
                    word = "{}={}".format(name, self.note(value))
                elif equals:
                    word = "{}={}".format(name, self.text(value))
            elif word.startswith("-") and not secret:
                pass
            else:
                word = self.note(word) if secret else self.text(word)
            found.append(word)
        return found

    def variables(self, given: Mapping[str, str]) -> None:
        """Remember those among variables; an empty one hides nothing."""
        for name, value in given.items():
            if value and is_secret(name, anywhere=True):
                self.note(value)

    def text(self, value: str) -> str:
        """A value without the secrets that can be told by their form or, in JSON, by their key."""
        try:
            data = json.loads(value) if value[:1] in ("{", "[") else None
        except (ValueError, RecursionError):
            data = None
        if data is not None:
            hidden = self._json(data)
            value = value if hidden == data else json.dumps(hidden)
        return _LOGIN.sub(HIDDEN + "@", _KNOWN.sub(HIDDEN, value))

    def _json(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: self.note(item) if isinstance(item, str) and item and is_secret(key) else self._json(item)
                for key, item in value.items()
            }
        return [self._json(item) for item in value] if isinstance(value, list) else value

    def page(self, text: str) -> str:
        """A YAML file of flags without what stands below a secret key."""
        lines, depth = [], -1
        for line in text.splitlines():
            indent = len(line) - len(line.lstrip())
            if depth >= 0 and line.strip() and (indent > depth or line.lstrip().startswith("- ")):
                self.note(line.strip().lstrip("- ").strip("\"'"))
                continue
            depth = -1
            match = _LINE.match(line)
            if match and is_secret(match.group(2)):
                depth = len(match.group(1))
                value = line[match.end() :].strip().strip("\"'")
                line = line[: match.end()].rstrip() + ' "{}"'.format(self.note(value) if value else HIDDEN)
            lines.append(self.text(line))
        return "\n".join(lines) + "\n"

    def scrub(self, value: Any) -> Any:
        """The same value of JSON with every secret hidden that was found, wherever it stands."""
        long = sorted((word for word in self.values if len(word) >= SHORT), key=len, reverse=True)
        pattern = re.compile("|".join(map(re.escape, long))) if long else None
        return self._scrub(value, pattern)

    def _scrub(self, value: Any, known: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._scrub(item, known) for key, item in value.items()}
        if isinstance(value, list):
            return [self._scrub(item, known) for item in value]
        if isinstance(value, str):
            return self.text(known.sub(HIDDEN, value) if known else value)
        return value
