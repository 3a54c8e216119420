"""Reads the YAML that gpufleet writes for the engine (gpufleet/spelling.py) without a YAML library.

It is what PyYAML's safe_dump makes of a mapping of plain values and lists: block style, scalars plain or quoted.
Anything else is an error, never another value.
"""

from __future__ import annotations

import re
from typing import Any

FLOAT = re.compile(r"-?[0-9]+\.[0-9]*(e[-+][0-9]+)?")
ESCAPES = {
    "0": "\0", "a": "\a", "b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "e": "\x1b", " ": " ",
    '"': '"', "\\": "\\", "/": "/", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029",
}  # fmt: skip
BREAKS = ("\n", "\u2028", "\u2029")
HEX = {"x": 2, "u": 4, "U": 8}
CONSTANTS: dict[str, Any] = {"null": None, "true": True, "false": False, "[]": [], "{}": {}}


def read(text: str) -> dict[str, Any]:
    """The mapping that a page holds. Raises ValueError with the line that cannot be read."""
    if text.strip() in ("", "{}"):
        return {}
    page = _Page(text)
    found = page.mapping()
    if page.at < len(page.text):
        raise page.wrong("it belongs to nothing above")
    return found


class _Page:
    """A place in a text."""

    def __init__(self, text: str) -> None:
        text = text.replace("\x85", "\n")  # as YAML 1.1 reads it
        self.text, self.at = text if text.endswith("\n") else text + "\n", 0

    def wrong(self, why: str, at: int | None = None) -> ValueError:
        """+ at: where, when it is not here"""
        number = self.text.count("\n", 0, self.at if at is None else at) + 1
        return ValueError(f"line {number}: {why}")

    def mapping(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self.at < len(self.text) and self.text[self.at] not in " -":
            key = self._key()
            if self._take("\n"):
                found[key] = self._items()
            else:
                self._need(" ")
                found[key] = self._scalar()
        return found

    def _key(self) -> str:
        if self.text[self.at] in "\"'":
            key = self._quoted()
            self._need(":")
            return key
        end = self.text.find(":", self.at)
        key = self.text[self.at : end]
        if end < 0 or not re.fullmatch(r"[A-Za-z0-9._-]+", key):
            raise self.wrong("it is no `key: value`")
        self.at = end + 1
        return key

    def _items(self) -> list[Any]:
        """The items of a list, each on a line of its own."""
        found = []
        while self._take("- "):
            if self.text.startswith("- ", self.at):
                raise self.wrong("a list in a list is not read here")
            found.append(self._scalar())
        if not found:
            raise self.wrong("a key without a value, or a mapping in a mapping, is not read here")
        return found

    def _scalar(self) -> Any:
        if self.text[self.at] in "\"'":
            text = self._quoted()
            self._need("\n")
            return text
        start, word = self.at, self._line()
        while self.text.startswith("  ", self.at):  # a plain text that was too long for one line
            word += " " + self._line().strip()
        if word in CONSTANTS:
            return CONSTANTS[word]
        if re.fullmatch(r"-?(0|[1-9][0-9]*)", word):
            return int(word)
        if FLOAT.fullmatch(word):
            return float(word)
        if word[:1] in ("&", "*", "!", "|", ">", "[", "{", "%", "@", "`") or f"{word} ".startswith("? "):
            raise self.wrong("this form of YAML is not read here", start)
        return word

    def _line(self) -> str:
        end = self.text.index("\n", self.at)
        line, self.at = self.text[self.at : end], end + 1
        return line

    def _quoted(self) -> str:
        """A text in quotes, which may go over several lines: one break is a space, more are one less."""
        start, quote, found = self.at, self.text[self.at], ""
        self.at += 1
        while self.at < len(self.text):
            character = self.text[self.at]
            self.at += 1
            if character == quote == "'" and self._take("'"):
                found += "'"
            elif character == quote:
                return found
            elif character == "\\" and quote == '"':
                found += self._escape()
            elif character in BREAKS:
                found = found.rstrip(" \t") + self._break(character)
            else:
                found += character
        raise self.wrong("its quote does not end", start)

    def _break(self, first: str) -> str:
        more = ""
        self._skip_blanks()
        while self.text[self.at : self.at + 1] in BREAKS:
            more += self.text[self.at]
            self.at += 1
            self._skip_blanks()
        return more or " " if first == "\n" else first + more

    def _escape(self) -> str:
        kind = self.text[self.at]
        self.at += 1
        if kind == "\n":  # the text goes on in the next line, after its indentation
            self._skip_blanks()
            return ""
        if kind in HEX:
            digits = self.text[self.at : self.at + HEX[kind]]
            self.at += len(digits)
            return chr(int(digits, 16))
        if kind not in ESCAPES:
            raise self.wrong(f"\\{kind} is no escape")
        return ESCAPES[kind]

    def _skip_blanks(self) -> None:
        while self.text[self.at : self.at + 1] in (" ", "\t"):
            self.at += 1

    def _take(self, word: str) -> bool:
        found = self.text.startswith(word, self.at)
        self.at += len(word) if found else 0
        return found

    def _need(self, word: str) -> None:
        if not self._take(word):
            raise self.wrong(f"{word!r} is missing")
