"""Signed apt repositories of one flat directory, the shape NVIDIA's has, with keys that are the lab's own."""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

from lab import cache
from lab.paths import Settings
from lab.shell import run

KEYS = ("debian", "cuda")


def keyring(settings: Settings) -> Path:
    """The GNUPGHOME of the lab, with one key for each repository; never the user's."""
    return cache.once(settings.cache, "keyring", {"keys": KEYS}, _make_keys)


def _make_keys(directory: Path) -> None:
    directory.chmod(0o700)
    with gpg_home(directory) as env:
        for name in KEYS:
            key = ["--quick-generate-key", user_id(name), "ed25519", "sign", "never"]
            run(["gpg", "--batch", "--passphrase", "", *key], env=env)
            armored = run(["gpg", "--batch", "--armor", "--export", user_id(name)], env=env)
            (directory / f"{name}.asc").write_text(armored)
            listed = run(["gpg", "--batch", "--with-colons", "--list-keys", user_id(name)], env=env)
            (directory / f"{name}.fingerprint").write_text(first_fingerprint(listed))


def user_id(name: str) -> str:
    return f"gpufleet lab {name} archive <{name}@lab.invalid>"


def first_fingerprint(listed: str) -> str:
    return next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:"))


def public_key(settings: Settings, name: str) -> str:
    return (keyring(settings) / f"{name}.asc").read_text()


def fingerprint(settings: Settings, name: str) -> str:
    return (keyring(settings) / f"{name}.fingerprint").read_text()


@contextmanager
def gpg_home(directory: Path) -> Iterator[dict[str, str]]:
    """The environment for gpg; the agent it starts on its own ends with the block."""
    env = {**os.environ, "GNUPGHOME": str(directory)}
    try:
        yield env
    finally:
        run(["gpgconf", "--kill", "all"], env=env)


def publish(settings: Settings, directory: Path, key: str) -> None:
    """Make Packages and the signed Release of the .deb files in a directory."""
    packages = "\n".join(package_entry(deb, directory) for deb in sorted(directory.rglob("*.deb")))
    (directory / "Packages").write_text(packages)
    (directory / "Packages.gz").write_bytes(gzip.compress(packages.encode(), mtime=0))
    indexes = {name: (directory / name).read_bytes() for name in ("Packages", "Packages.gz")}
    release = release_text(f"gpufleet lab {key}", indexes, datetime.now(UTC))
    (directory / "Release").write_text(release)
    with gpg_home(keyring(settings)) as env:
        sign = ["gpg", "--batch", "--yes", "--local-user", user_id(key)]
        run([*sign, "--clearsign", "--output", directory / "InRelease", directory / "Release"], env=env)
        run([*sign, "--armor", "--detach-sign", "--output", directory / "Release.gpg", directory / "Release"], env=env)


def package_entry(deb: Path, directory: Path) -> str:
    control = run(["dpkg-deb", "--field", deb]).rstrip("\n")
    where = f"Filename: ./{deb.relative_to(directory)}"
    return f"{control}\n{where}\nSize: {deb.stat().st_size}\nSHA256: {cache.file_digest(deb)}\n"


def release_text(origin: str, indexes: dict[str, bytes], at: datetime) -> str:
    sums = "".join(f" {hashlib.sha256(data).hexdigest()} {len(data)} {name}\n" for name, data in indexes.items())
    date = format_datetime(at, usegmt=True)
    return f"Origin: {origin}\nLabel: {origin}\nDate: {date}\nArchitectures: amd64\nSHA256:\n{sums}"


def source(url: str, keyring_file: str) -> str:
    """The deb822 source of such a repository."""
    return f"Types: deb\nURIs: {url}\nSuites: ./\nSigned-By: {keyring_file}\n"


def debian(settings: Settings, debs: Path) -> Path:
    """The repository every box has from the start, as a normal box has Debian's."""

    def build(directory: Path) -> None:
        for deb in debs.glob("*.deb"):
            os.link(deb, directory / deb.name)
        publish(settings, directory, "debian")

    names = sorted(deb.name for deb in debs.glob("*.deb"))
    return cache.once(settings.cache, "debian", {"debs": names, "key": fingerprint(settings, "debian")}, build)
