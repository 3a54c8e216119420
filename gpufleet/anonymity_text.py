"""Texts and JSON without what tells one box, card, person or network from another, and still fit to be read.

Whoever is named gets a stand-in, everywhere the same: `box-1`, `user-1`, `GPU-1`, `address-2`. Known names are told
beforehand (`know`); others are learned from the texts themselves (`learn`), all of them before the first is written.
What opens something is hidden, not numbered. It is a filter of forms and names, and no proof: what is written must be
looked through by its owner.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from gpufleet import anonymity_forms as forms
from gpufleet import masking
from gpufleet.anonymity_names import Names, is_number
from gpufleet.masking import HIDDEN

# Private letters of Unicode, around the number of what was put there: nothing else may look into it.
_OPEN, _CLOSE = "\ue000", "\ue001"
_PUT = re.compile(f"{_OPEN}(\\d+){_CLOSE}")
_DOMAIN_OF = re.compile(_PUT.pattern + forms.DOMAIN.pattern)
_USERS, _HOSTS = ("who", "by", "user", "ssh_user", "login"), ("host", "hostname", "fqdn", "ssh_hostname")
_VERSION = re.compile(r"[\w.+:~-]{1,80}")


class Disguise(Names):
    """Takes names and secrets out of texts and JSON.

    + vocabulary: see Names
    """

    def __init__(self, vocabulary: Collection[str] = ()) -> None:
        super().__init__(vocabulary)
        self._put: list[str] = []

    def learn(self, value: Any) -> None:
        """Take in who is named in a text, or in the texts of JSON: in homes, logins, addresses, lines of sshd."""
        for text, key in _texts(value):
            if key in _USERS + _HOSTS and not forms.is_address(text) and "@" not in text and len(text.split()) == 1:
                self._meet("user" if key in _USERS else "host", text)
            self._learn(text)

    def document(self, value: Any, versions: bool = False) -> Any:
        """The same JSON with stand-ins, in keys as well; what a secret's name stands before is hidden.

        + versions: its texts are versions of packages, in which four numbers are no address
        """
        if isinstance(value, Mapping):
            return {
                self.text(str(key)): HIDDEN
                if _hides(str(key), item)
                else self.document(item, versions or key in ("packages", "nvidia_packages", "version", "candidate"))
                for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            before = ["", *value]
            return [
                HIDDEN if _opens(name) and isinstance(item, str) else self.document(item, versions)
                for name, item in zip(before, value, strict=False)
            ]
        if not isinstance(value, str):
            return self._words.get(str(value), value)  # a serial of digits only
        return self._names(value) if versions and _VERSION.fullmatch(value) else self.text(value)

    def json(self, value: Any) -> str:
        """`document` as text of a file."""
        return json.dumps(self.document(value), indent=1, ensure_ascii=False) + "\n"

    def text(self, text: str) -> str:
        """A text with stand-ins."""
        self._put = []
        found = text.replace(_OPEN, "\ufffd").replace(_CLOSE, "\ufffd")
        found = self._hide(found)
        found = self._by_form(found)
        return self._filled(self._by_name(found))

    # known names

    def _names(self, text: str) -> str:
        self._put = []
        return self._filled(self._by_name(text))

    def _by_name(self, text: str) -> str:
        if not self._words and not self._secrets:
            return text

        def stand_in(found: re.Match[str]) -> str:
            return self._as(self._words.get(found[0].lower(), HIDDEN))

        return _DOMAIN_OF.sub(self._whole_host, self.known().sub(stand_in, text))

    def _whole_host(self, found: re.Match[str]) -> str:
        """The domain after the name of a host goes, too."""
        stand_in = self._put[int(found[1])]
        return found[0][: found.end(1) + 1 - found.start()] if stand_in.startswith(("box-", "host-")) else found[0]

    def _meet(self, kind: str, text: str) -> None:
        name = text.strip().rstrip(".")
        if name and name.lower() not in self._words and name.lower() not in forms.COMMON and not is_number(name):
            self.know(kind, name)

    def _learn(self, text: str) -> None:
        for _, name in forms.HOME.findall(text):
            self._meet("user", name)
        for pattern in forms.SAID_USERS:
            for name in pattern.findall(text):
                self._meet("user", name)
        for pattern in forms.SAID_HOSTS:
            for name in pattern.findall(text):
                if not forms.is_address(name) and not forms.is_public(name) and name.lower() not in forms.COMMON:
                    self._meet("host", name)
        for found in forms.LOGIN.finditer(text):
            if not forms.UNIT_INSTANCE.search(found[2]) and not forms.is_public(found[2]):
                self._meet("user", found[1])
                self._meet("host", found[2])
        for _, owner in forms.HUB.findall(text):
            if owner.lower() not in self._public:
                self._meet("hub-user", owner)
        for host in [*forms.URL.findall(text), *forms.INSIDE.findall(text)]:
            if not forms.is_address(host) and not forms.is_public(host):
                self._meet("host", host)

    # forms

    def _hide(self, text: str) -> str:
        """What opens something."""
        text = forms.PEM.sub(HIDDEN, text)
        text = forms.HEADER.sub(rf"\1\2{HIDDEN}", text)
        text = forms.SSH_KEY.sub(lambda _: self._as("<ssh-key>"), text)
        text = forms.TOKEN.sub(HIDDEN, text)
        text = masking.text(text)
        text = forms.NAMED.sub(_named, text)
        return forms.QUERY.sub(rf"\1?{HIDDEN}", text)

    def _by_form(self, text: str) -> str:
        text = forms.FINGERPRINT.sub(self._numbered("fingerprint"), text)
        text = forms.GPU_UUID.sub(self._card, text)
        text = forms.UUID.sub(self._uuid, text)
        text = forms.DISK.sub(lambda found: found[1] + self._as(self.stand_in("disk", found[2])), text)
        text = forms.MAC.sub(self._numbered("mac"), text)
        text = forms.NETWORK_CARD.sub(lambda found: found[1] + self._as(self.stand_in("mac", found[2])), text)
        text = forms.EMAIL.sub(self._email, text)
        text = forms.IPV6.sub(self._address6, text)
        text = forms.IPV4.sub(self._address, text)
        text = forms.SERIAL.sub(lambda found: found[1] + self._as(self.stand_in("serial", found[2])), text)
        text = forms.HUB.sub(self._hub, text)
        text = forms.URL.sub(self._host_of_url, text)
        text = forms.LOGIN.sub(self._login, text)
        text = forms.HOME.sub(lambda found: found[1] + self._user(found[2]), text)
        text = forms.INSIDE.sub(lambda found: self._host(found[1]), text)
        text = forms.HASH.sub(self._numbered("hash"), text)
        return forms.OPAQUE.sub(lambda found: HIDDEN if forms.is_opaque(found[0]) else found[0], text)

    def _card(self, found: re.Match[str]) -> str:
        """A card by its UUID, or the beginning of one, as CUDA_VISIBLE_DEVICES takes it."""
        whole = found[0].lower()
        known = [stand_in for word, stand_in in self._words.items() if word.startswith(whole)]
        return self._as(known[0] if known else self.stand_in(found[1], whole))

    def _uuid(self, found: re.Match[str]) -> str:
        known = self._words.get(found[0].lower()) or self._words.get("gpu-" + found[0].lower())
        return self._as(known or self.stand_in("uuid", found[0]))

    def _address(self, found: re.Match[str]) -> str:
        address = forms.address(found[0])
        return found[0] if address is None else self._as(self.stand_in("address", address))

    def _address6(self, found: re.Match[str]) -> str:
        if found["run"].count(":") < 2:
            return found[0]
        parts = forms.ipv6(found["run"], found["word"] is not None, found["more"] is not None)
        address = forms.address(parts[1]) if parts else None
        if parts is None or address is None:
            return found[0]
        return parts[0] + self._as(self.stand_in("address", address)) + parts[2]

    def _email(self, found: re.Match[str]) -> str:
        person, _, host = found[0].partition("@")
        if forms.UNIT_INSTANCE.search(host) or (person.lower() in forms.COMMON and forms.is_public(host)):
            return found[0]
        return self._as(self.stand_in("email", found[0]))

    def _hub(self, found: re.Match[str]) -> str:
        """The owner of a repository: a login, unless it is one that everybody knows."""
        if found[2].lower() in self._public or _PUT.search(found[2]):
            return found[0]
        return found[1] + self._as(self.stand_in("hub-user", found[2]))

    def _host_of_url(self, found: re.Match[str]) -> str:
        start = found.start(1) - found.start()
        return found[0][:start] + self._host(found[1])

    def _login(self, found: re.Match[str]) -> str:
        if forms.UNIT_INSTANCE.search(found[2]) or (found[1].lower() in forms.COMMON and forms.is_public(found[2])):
            return found[0]
        return f"{self._user(found[1])}@{self._host(found[2])}"

    def _host(self, name: str) -> str:
        if _PUT.search(name) or name.lower() in forms.COMMON or forms.is_public(name) or forms.is_address(name):
            return name
        return self._as(self.stand_in("host", name.rstrip(".")))

    def _user(self, name: str) -> str:
        if _PUT.search(name) or name.lower() in forms.COMMON:
            return name
        return self._as(self.stand_in("user", name))

    def _numbered(self, kind: str) -> Callable[[re.Match[str]], str]:
        return lambda found: self._as(self.stand_in(kind, found[0]))

    def _as(self, stand_in: str) -> str:
        self._put.append(stand_in)
        return f"{_OPEN}{len(self._put) - 1}{_CLOSE}"

    def _filled(self, text: str) -> str:
        return _PUT.sub(lambda found: self._put[int(found[1])], text)


def _named(found: re.Match[str]) -> str:
    """`api_key: abc` without its value; a count of tokens, or one that is none, stays."""
    value = found[3]
    harmless = is_number(value) or value.lower() in ("none", "null", "true", "false", "hidden")
    shown = harmless or _OPEN in value or not masking.is_secret(found[1])
    return found[0] if shown else f"{found[1]}{found[2]}{HIDDEN}"


def _hides(key: str, value: Any) -> bool:
    """Whether the name before a value of JSON says that it is a secret."""
    if isinstance(value, (bool, type(None))) or value in ("", [], {}):
        return False
    if isinstance(value, (str, list)):
        return masking.is_secret(key, anywhere=True)
    return isinstance(value, (int, float)) and masking.is_secret(key) and not key.lower().endswith("token")


def _opens(word: Any) -> bool:
    """Whether a word of a command line is the name of a secret that the next one is: `--api-key`, `password:`."""
    if not isinstance(word, str) or not re.fullmatch(r"-{0,2}[\w-]+[:=]?", word) or not word.strip("-:="):
        return False
    return (word.startswith("-") or word.endswith((":", "="))) and masking.is_secret(word.strip("-:="))


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """(text, the key it stands under) of everything in a value of JSON, keys included."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield str(name), ""
            yield from _texts(item, str(name))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item, key)
    elif isinstance(value, str):
        yield value, key
