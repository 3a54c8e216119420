"""Files of git repositories at one pinned commit, by the `git` program; fetched once, then kept.

Nothing of a repository is run or checked out: its objects go into a bare folder named by the commit, and git itself
makes sure that they are that commit's. No hook, no configuration of the user's and no question for a login takes part;
the environment's proxies and certificates do.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath

from gpufleet.parts import GitPatches
from gpufleet.patches import Patch, Series
from gpufleet.wheelhouse import mirror

TIMEOUT_SECONDS = 900  # of one call; a transfer that stands still ends after STALLED_SECONDS
STALLED_SECONDS = 60
PLAIN = ("100644", "100755")  # git's modes of files; others are links and submodules
# Variables of git's own that say how the network is reached. Others could name programs, and are left out.
KEPT = ("GIT_SSL_", "GIT_PROXY_SSL_", "GIT_HTTP_PROXY_AUTHMETHOD", "GIT_HTTP_USER_AGENT")
OPTIONS = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "credential.helper=",
    "gc.auto=0",
    "maintenance.auto=false",
    "http.lowSpeedLimit=1000",
    f"http.lowSpeedTime={STALLED_SECONDS}",
    "protocol.allow=never",
]
# What a server says that gives no commits out by name, or no part of a history: its branches are then fetched whole.
NOT_BY_NAME = re.compile(r"unadvertised object|does not support shallow|dumb http transport", re.IGNORECASE)
CAUSES = [  # what git says, what it means, what to do
    (
        r"No space left on device|Disk quota exceeded|Read-only file system|Permission denied",
        "cannot be kept in the store of this machine",
        "free space there or mend that, or set GPUFLEET_STORE to a folder on another disk",
    ),
    (
        r"not our ref|unadvertised object|couldn't find remote ref",
        "has no commit {commit}",
        "check `commit` of the stack's page; a mirror may be older than it",
    ),
    (
        r"could not read (Username|Password)|Authentication failed|terminal prompts disabled",
        "asks for a login: there is no such repository, or it is not public",
        "check `git` of the stack's page, or set mirrors.git to a mirror that needs no login",
    ),
    (
        r"dubious ownership",
        "belongs to another user, and git does not read it then",
        "make the folder yours or root's, or serve it over http",
    ),
    (
        r"does not appear to be a git repository|not found|returned error: 404",
        "is no git repository",
        "check `git` of the stack's page and the setting mirrors.git",
    ),
    (
        r"resolve (host|proxy)|connect|timed out|unable to access|early EOF|hung up|too slow|SSL|certificate",
        "was not reached",
        "look at this machine's network and its proxy variables (https_proxy), or set mirrors.git",
    ),
]


class GitError(Exception):
    """Files of a git repository that cannot be had: names the address, the cause and what to do."""


@dataclass(frozen=True)
class Git:
    """Where commits are kept, and how they are fetched.

    + cache: the controller's folder for them
    + mirror: the setting `mirrors.git`
    + offline: nothing is fetched, what is not kept is an error
    """

    cache: Path
    mirror: str | None = None
    offline: bool = False

    def series(self, wanted: GitPatches) -> Series:
        """The patches of somebody else, each checked by its sha256. Raises GitError."""
        found = self.files(wanted.git, wanted.commit, [item.path for item in wanted.files])
        for item in wanted.files:
            if (got := sha256(found[item.path]).hexdigest()) != item.sha256:
                raise GitError(
                    f"{wanted.git}: {item.path} at commit {wanted.commit} has sha256 {got}, the stack says "
                    f"{item.sha256}. Do not use it before you have read it; then write its sha256 into the page."
                )
        return Series(
            tuple(
                Patch(PurePosixPath(item.path).name, found[item.path].decode("utf-8", "surrogateescape"))
                for item in wanted.files
            )
        )

    def files(self, address: str, commit: str, paths: Sequence[str]) -> dict[str, bytes]:
        """These files of a commit, by path. Raises GitError."""
        repository = self._commit(address, commit)
        there = _listed(repository, commit, paths)
        for path in paths:
            if path not in there:
                raise GitError(f"{address} has no file {path} at commit {commit}. Check the path in the stack's page.")
        return _read(repository, address, {path: there[path] for path in paths})

    def tree(self, address: str, commit: str, folders: Sequence[str]) -> dict[str, bytes]:
        """All files below these folders of a commit, by path. Raises GitError."""
        repository = self._commit(address, commit)
        there = _listed(repository, commit, folders)
        for folder in folders:
            if not any(path.startswith(f"{folder.rstrip('/')}/") for path in there):
                raise GitError(
                    f"{address} has no folder {folder} at commit {commit}. Check `packages` in the stack's page."
                )
        return _read(repository, address, there)

    def _commit(self, address: str, commit: str) -> Path:
        """The bare repository that holds this commit, fetched unless it is there."""
        place = self.cache / f"{commit}.git"
        if (place / "HEAD").is_file():
            return place
        source = mirror.of_git(address, self.mirror)
        if self.offline:
            raise GitError(
                f"{source}: commit {commit} is not on this machine, and fetch.offline is set. "
                "Fetch it where there is a network, and bring it here."
            )
        self.cache.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=self.cache, prefix=".fetch-"))
        try:
            _fetch(aside, source, commit)
            aside.chmod(0o755)
            aside.rename(place)
        except OSError:
            if not (place / "HEAD").is_file():  # else another process was first, with the same commit
                raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        return place


def _fetch(repository: Path, source: str, commit: str) -> None:
    """Fetch exactly this commit, without its history where the server can do that. Raises GitError."""
    made = _git(repository, ["init", "--quiet", "--bare", "--template=", "."])
    if made.returncode:
        raise GitError(_explained(source, commit, made.stderr.decode(errors="replace")))
    # Of this machine's own files only where the mirror says so: never by way of what a server answers.
    protocols = ("file",) if source.startswith("file:") else ("http", "https")
    fetch = [part for name in protocols for part in ("-c", f"protocol.{name}.allow=always")]
    fetch += ["fetch", "--quiet", "--no-tags", "--no-auto-gc"]
    fetch += ["--no-recurse-submodules"]
    done = _git(repository, [*fetch, "--depth=1", source, commit], of=source)
    if done.returncode and NOT_BY_NAME.search(done.stderr.decode(errors="replace")):
        done = _git(repository, [*fetch, source, "+refs/*:refs/fetched/*"], of=source)
    said = done.stderr.decode(errors="replace")
    if done.returncode:
        raise GitError(_explained(source, commit, said))
    if _git(repository, ["cat-file", "-e", f"{commit}^{{commit}}"]).returncode:
        raise GitError(_explained(source, commit, "not our ref"))


def _listed(repository: Path, commit: str, paths: Sequence[str]) -> dict[str, str]:
    """The object of each file at or below these paths. Raises GitError for a link or a submodule among them."""
    done = _git(repository, ["ls-tree", "-r", "-z", "--full-tree", commit, "--", *paths])
    if done.returncode:
        raise _damaged(repository, done.stderr)
    found = {}
    for line in done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]:
        what, _, path = line.partition("\t")
        mode, _, name = what.split(" ")
        if mode not in PLAIN:
            raise GitError(f"{path} at commit {commit} is a link or a submodule. Name folders without such.")
        found[path] = name
    return found


def _read(repository: Path, address: str, objects: Mapping[str, str]) -> dict[str, bytes]:
    """The content of objects, by path, as `git cat-file --batch` prints it."""
    asked = "".join(f"{name}\n" for name in objects.values()).encode()
    done = _git(repository, ["cat-file", "--batch"], given=asked)
    contents, at = {}, 0
    for path, name in objects.items():
        head, _, _ = done.stdout[at:].partition(b"\n")
        words = head.split()
        if done.returncode or len(words) != 3 or words[:2] != [name.encode(), b"blob"]:
            raise _damaged(repository, done.stderr)
        start = at + len(head) + 1
        at = start + int(words[2]) + 1
        contents[path] = done.stdout[start : at - 1]
    return contents


def _damaged(repository: Path, said: bytes) -> GitError:
    reason = _last(said.decode(errors="replace")) or "an object is missing"
    return GitError(f"{repository} is damaged: {reason}. Delete that folder; it is fetched again.")


def _explained(source: str, commit: str, said: str) -> str:
    for pattern, cause, remedy in CAUSES:
        if re.search(pattern, said, re.IGNORECASE):
            return f"{source} {cause.format(commit=commit)} ({_last(said)}). {remedy[0].upper()}{remedy[1:]}."
    return f"{source}: git failed: {_last(said)}. Look at the address in the stack's page and at mirrors.git."


def _last(said: str) -> str:
    """The line of an output that says what went wrong."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return next((line for line in lines if line.startswith(("fatal:", "error:"))), lines[-1] if lines else "no reason")


def _git(
    repository: Path, arguments: Sequence[str], *, given: bytes = b"", of: str = ""
) -> subprocess.CompletedProcess[bytes]:
    """Run git in a repository; all it starts ends with it. Raises GitError when there is no git, or it hangs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name.startswith(KEPT)}
    own = {
        "GIT_DIR": str(repository),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "SSH_ASKPASS": "",
        "LC_ALL": "C",
    }
    command = ["git", *(part for option in OPTIONS for part in ("-c", option)), *arguments]
    try:
        process = subprocess.Popen(
            command,
            cwd=repository,
            env={**kept, **own},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise GitError("there is no git program on this machine. Install it: apt-get install git") from None
    try:
        out, err = process.communicate(given, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        raise GitError(
            f"{of or repository}: git did not end in {TIMEOUT_SECONDS} s. Look at the network, try again."
        ) from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return subprocess.CompletedProcess(command, process.returncode, out, err)
