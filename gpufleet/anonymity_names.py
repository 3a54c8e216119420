"""Who and what is known by name, and the stand-in of each: `box-1`, `user-1`, `GPU-1`, `address-2`."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any
from urllib.parse import quote

from gpufleet import anonymity_forms as forms
from gpufleet.masking import HIDDEN

LEAST = 3  # letters of a name that is looked for as a bare word; shorter ones only where a line says what they are
LEAST_SECRET, WHOLE_SECRET = 4, 6  # letters of a secret that is looked for as a word; and as a part of others
LEAST_NUMBER = 6  # digits of a serial; what is shorter is a count


class Names:
    """Stand-ins for who and what is named. Made for one bundle, and forgotten with it."""

    def __init__(self, vocabulary: Collection[str] = ()) -> None:
        """+ vocabulary: names of keys and fields, `tokens_per_second`: in these no name is looked for"""
        self._parts = {part for word in vocabulary for part in word.lower().split("_")}
        self._stand_ins: dict[tuple[str, str], str] = {}  # (kind, spelling in small letters)
        self._numbers: Counter[str] = Counter()
        self._given: set[str] = set()
        self._words: dict[str, str] = {}  # known names in small letters
        self._secrets: set[str] = set()
        self._public = set(forms.PUBLIC_OWNERS)
        self._pattern: re.Pattern[str] | None = None

    def know(self, kind: str, *texts: Any) -> str:
        """These texts all name one thing of this kind (`box`, `host`, `user`, `address`, `serial`…); its stand-in."""
        spoken = [text.strip() for text in texts if isinstance(text, str) and text.strip()]
        known = [self._words[text.lower()] for text in spoken if text.lower() in self._words]
        stand_in = known[0] if known else self._next(kind)
        for text in spoken:
            if text.lower() not in forms.COMMON and not (is_number(text) and len(text) < LEAST_NUMBER):
                self._words.setdefault(text.lower(), stand_in)
        self._pattern = None
        return stand_in

    def public(self, *owners: str) -> None:
        """Owners of repositories on the hub who may be named."""
        self._public |= {owner.lower() for owner in owners}

    def secret(self, *texts: Any) -> None:
        """Values that must not be written in any spelling, nor a hash of them."""
        for text in texts:
            for each in {str(text), *str(text).splitlines()}:
                if len(each.strip()) >= LEAST_SECRET and each.strip().lower() not in forms.COMMON:
                    self._secrets |= set(_spellings(each.strip()))
        self._pattern = None

    def left(self, text: str) -> list[str]:
        """Which known names and secrets are still in a text: there should be none."""
        if not self._words and not self._secrets:
            return []
        stand_ins = "|".join(map(re.escape, sorted(self._numbers)))
        rest = re.sub(rf"(?:{stand_ins})-\d+|{HIDDEN}|<ssh-key>", " ", text) if stand_ins else text
        return sorted({found[0].lower() for found in self.known().finditer(rest)})

    def known(self) -> re.Pattern[str]:
        """What finds all of them in a text."""
        if self._pattern is None:
            words = [word for word in sorted(self._words, key=len, reverse=True) if len(word) >= LEAST]
            secrets = sorted(self._secrets, key=len, reverse=True)
            long = [re.escape(word) for word in secrets if len(word) >= WHOLE_SECRET]
            parts = ["|".join(long)] if long else []
            parts += [rf"(?<!\w){re.escape(word)}(?!\w)" for word in secrets if len(word) < WHOLE_SECRET]
            # a name ends where letters and digits do: `turing-1` is in `turing-1:8000` and `log_turing-1`, not in
            # `turing-10`; one that is a part of our own keys stands alone
            parts += _any(r"A-Za-z0-9", [word for word in words if word not in self._parts])
            parts += _any(r"A-Za-z0-9_", [word for word in words if word in self._parts])
            self._pattern = re.compile("|".join(parts) or r"(?!)")
        return self._pattern

    def stand_in(self, kind: str, text: str) -> str:
        """That of a name which was found by its form; a new one for one that was not met before; a stand-in's own."""
        known = self._words.get(text.lower()) or (text if text in self._given else None)
        if known is None:
            known = self._stand_ins.get((kind, text.lower())) or self._next(kind)
            self._stand_ins[(kind, text.lower())] = known
        return known

    def _next(self, kind: str) -> str:
        self._numbers[kind] += 1
        given = f"{kind}-{self._numbers[kind]}"
        self._given.add(given)
        return given


def _any(letters: str, words: Iterable[str]) -> list[str]:
    """A pattern of these words with none of these letters around; none of no words."""
    found = "|".join(re.escape(word) for word in words)
    return [rf"(?i:(?<![{letters}])(?:{found})(?![{letters}]))"] if found else []


def is_number(text: str) -> bool:
    """Whether it is one, as people write it: `8,000`, `12 %` without the blank."""
    return re.fullmatch(r"[-+]?[\d.,]+%?", text) is not None


def _spellings(secret: str) -> Iterator[str]:
    """A secret as it is, in an address, in base64, and its usual hashes."""
    raw = secret.encode("utf-8", "surrogatepass")
    yield secret
    yield quote(secret, safe="")
    yield json.dumps(secret)[1:-1]
    yield base64.b64encode(raw).decode().rstrip("=")
    yield base64.urlsafe_b64encode(raw).decode().rstrip("=")
    for name in ("md5", "sha1", "sha256", "sha512"):
        digest = hashlib.new(name, raw, usedforsecurity=False)
        yield digest.hexdigest()
        yield digest.hexdigest().upper()
        yield base64.b64encode(digest.digest()).decode().rstrip("=")
