"""The shell scripts that look at a box and put the kit there: text in, text out; /bin/sh on the box runs them.

Each program that a script starts is a process on every box at every run, so there are few.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from gpufleet.kit import Kit

# Isolated and without site-packages: the kit brings what it needs.
PYTHON = "python3 -IS"
NO_PYTHON = "command -v python3 >/dev/null || { echo GPUFLEET:NOPYTHON; exit 0; }"
COMPILE = "import sys; sys.path.insert(0, sys.argv[1]); from hostkit import bytecode; bytecode.add(*sys.argv[1:])"


def call(folder: str, kit: Kit, verb: str) -> str:
    """Run a verb, which reads its spec from standard input."""
    return f"exec {PYTHON} {shlex.quote(f'{folder}/{kit.name}')} {shlex.quote(verb)}"


def look(folder: str, kit: Kit, spec: Mapping[str, Any]) -> str:
    """How the login becomes root, then the probe where the kit is there and whole, else GPUFLEET:NOKIT."""
    return f"""
if [ "$(id -u)" = 0 ]; then S=; else
  command -v sudo >/dev/null || {{ echo GPUFLEET:NOSUDO; exit 0; }}
  E=$(LC_ALL=C sudo -n true 2>&1) || {{ echo "GPUFLEET:SUDO:$E"; exit 0; }}
  S="sudo -n"
fi
{NO_PYTHON}
echo "GPUFLEET:AS:$S"
{_probe(folder, kit, spec)}"""


def look_as_root(folder: str, kit: Kit, spec: Mapping[str, Any]) -> str:
    """The same where it is root already."""
    return f"""
S=
{NO_PYTHON}
echo GPUFLEET:AS:
{_probe(folder, kit, spec)}"""


def _probe(folder: str, kit: Kit, spec: Mapping[str, Any]) -> str:
    path = shlex.quote(f"{folder}/{kit.name}")
    # The spec comes with the script and not on standard input, where sudo would take it for a second try of a password
    # that is wrong: a few of those lock an account.
    # A power cut can leave a file of the right name and no content: its checksum, which costs little, is beside it.
    return f"""
K={path}
{{ read -r W < $K.sum && [ "$(cksum < $K)" = "$W" ]; }} 2>/dev/null && exec $S {PYTHON} $K probe <<'GPUFLEET'
{json.dumps(spec)}
GPUFLEET
echo GPUFLEET:NOKIT
"""


def push(folder: str, kit: Kit, newest: str) -> str:
    """Take the kit from standard input; it is in place only when its hash is right. Prints a line when it failed.

    Each deploy writes a file of its own: two at once would write into each other's. Kits of other versions stay for a
    day, since another deploy may be using one. Units of the box call the newest by a link. A Python that cannot add
    the byte code runs it as it is.
    """
    name, path = shlex.quote(kit.name), shlex.quote(f"{folder}/{kit.name}")
    return f"""
umask 022; mkdir -p {folder} && part=$(mktemp {folder}/.part-XXXXXX) || exit 1
trap 'rm -f "$part" "$part.c"' EXIT
cat > "$part" || exit 1
[ "$(sha256sum < "$part")" = "{kit.digest}  -" ] || {{ echo damaged; exit 1; }}
{PYTHON} -c {shlex.quote(COMPILE)} "$part" "$part.c" 2>/dev/null && mv "$part.c" "$part"
chmod 644 "$part" && sync "$part" || exit 1
sum=$(cksum < "$part")
[ "$sum" = "$({{ cksum < {path}; }} 2>/dev/null)" ] || mv "$part" {path} || exit 1
echo "$sum" > "$part" && chmod 644 "$part" && sync "$part" && mv "$part" {path}.sum || exit 1
ln -s {name} "$part" && mv -T "$part" {newest}; sync {folder}
find {folder} -name '.part-*' -mmin +60 -delete
find {folder} -name 'gpufleet-kit-*' ! -name {shlex.quote(kit.name + "*")} -mmin +1440 -delete
"""
