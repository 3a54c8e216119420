"""A virtual environment made of files in the box's store alone: uv looks at no index, no configuration, no network."""

from __future__ import annotations

import os
import shutil
import stat
import zipfile

from hostkit import events, files, space, steps, store
from hostkit.errors import Failure

OFFLINE = {
    "UV_NO_CONFIG": "1",
    "UV_OFFLINE": "1",
    "UV_NO_PROGRESS": "1",
    "UV_PYTHON_DOWNLOADS": "never",
    "UV_PYTHON_PREFERENCE": "only-system",  # one that uv keeps below /root no service may read
    "UV_LINK_MODE": "hardlink",
    # By what a source holds and not by its time, which is another on each box: so byte code can be passed on.
    "PYC_INVALIDATION_MODE": "CHECKED_HASH",
}
AGAIN = "read the message; when it names a file, deploy again: a damaged one is fetched anew"


def kit_folder() -> str:
    return os.path.join(files.ROOT, "kit")


def uv_folder(wheel: dict) -> str:
    """`uv-<version>-<digest>`"""
    return "uv-{}-{}".format(wheel["filename"].split("-")[1], wheel["sha256"][:12])


def uv(wheel: dict) -> str:
    """The path of uv, out of its wheel {filename, sha256}. Nothing of a wheel has to run to have it: it is one program.

    Raises Failure when the wheel is damaged or has no uv in it.
    """
    directory = os.path.join(kit_folder(), uv_folder(wheel))
    program = os.path.join(directory, "bin", "uv")
    if os.access(program, os.X_OK) and os.path.getsize(program) == files.mark(directory).get("size"):
        return program
    path = store.path(wheel["filename"], wheel["sha256"])
    if files.sha256(path) != wheel["sha256"]:
        raise damage(path)
    events.log("installing {}".format(wheel["filename"]))
    aside = os.path.join(kit_folder(), ".{}.building".format(uv_folder(wheel)))
    for left in (aside, directory):
        shutil.rmtree(left, ignore_errors=True)
    made = os.path.join(aside, "bin", "uv")
    os.makedirs(os.path.dirname(made))
    with zipfile.ZipFile(path) as archive:
        inside = [name for name in archive.namelist() if name.endswith(".data/scripts/uv")]
        if len(inside) != 1:
            raise Failure("{} holds no uv".format(wheel["filename"]), "correct `uv` in the stack's page")
        with archive.open(inside[0]) as source, open(made, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
    os.chmod(made, 0o755)  # noqa: S103
    files.complete(aside, {**wheel, "size": os.path.getsize(made)})
    os.rename(aside, directory)
    files.sync_directory(kit_folder())
    return program


def require_stocked(wanted: list) -> None:
    """Raise Failure naming a file that is not whole in the store."""
    for item in wanted:
        if not store.has(item["filename"], item["sha256"], item.get("size")):
            raise Failure(
                "{} is not whole in the box's store".format(item["filename"]), "deploy again: what is missing is sent"
            )


def environment(spec: dict, tree: str, work: str, byte_code: bool = True) -> None:
    """Make the virtual environment `tree` of the spec's lock and of its wheels that no lock names.

    + work: a directory of this attempt, on the same file system, for uv's cache and links to the wheels
    + byte_code: whether it is made here, and does not come from another box
    `tree` may be renamed when it is done: nothing in it says where it lies. Raises Failure.
    """
    wheels = [item for item in spec["files"] if item["sha256"] != spec["uv"]["sha256"]]
    require_stocked(wheels)
    paths = [store.path(item["filename"], item["sha256"]) for item in wheels]
    space.require(os.path.dirname(tree), space.needed(space.unpacked(paths)), spec["name"])
    program, python = uv(spec["uv"]), os.path.join(tree, "bin", "python")
    env = {**OFFLINE, "UV_CACHE_DIR": os.path.join(work, "cache")}
    links = os.path.join(work, "wheels")
    os.makedirs(links)
    for path in paths:
        os.symlink(path, os.path.join(links, os.path.basename(path)))
    lock = os.path.join(work, "requirements.txt")
    with open(lock, "w", encoding="utf-8") as handle:
        handle.write(requirements(spec["lock"], wheels, links))
    events.log("making the virtual environment {} of {} wheels".format(spec["name"], len(wheels)))
    step(spec, tree, [program, "venv", "--relocatable", "--no-project", "--python", spec["python"], tree], env)
    install = [program, "pip", "install", "--python", python, "--no-index", "--find-links", links, "--no-deps",
               "--require-hashes", *(["--compile-bytecode"] if byte_code else []), "-r", lock]  # fmt: skip
    try:
        step(spec, tree, install, env)
    except Failure:
        drop_damaged(wheels)
        raise
    step(spec, tree, [program, "pip", "check", "--python", python], env)


def step(spec: dict, tree: str, arguments: list, env: dict) -> None:
    words = " ".join(["uv"] + [word for word in arguments[1:3] if not word.startswith("-")])
    steps.run("{} for {}".format(words, spec["name"]), arguments, env, os.path.dirname(tree), AGAIN)


def requirements(lock: str, wheels: list, links: str) -> str:
    """The lock, and each wheel that it does not name by its own file and hash."""
    more = [
        "{} --hash=sha256:{}\n".format(os.path.join(links, item["filename"]), item["sha256"])
        for item in sorted(wheels, key=lambda item: str(item["filename"]))
        if item["sha256"] not in lock
    ]
    return lock.rstrip("\n") + "\n" + "".join(more)


def drop_damaged(wheels: list) -> None:
    """Look through the wheels after a failure: one that is not what its name says goes, and is named.

    Their hashes were right when they came into the store; a power cut or a disk may have changed that.
    """
    for item in wheels:
        path = store.path(item["filename"], item["sha256"])
        if files.sha256(path) != item["sha256"]:
            raise damage(path)


def damage(path: str) -> Failure:
    """The error of a file that is not what its name says, which is removed; or of one that is not there any more."""
    if not os.path.lexists(path):
        return Failure(
            "{} is gone from the box's store".format(os.path.basename(path)), "deploy again: it is sent anew"
        )
    files.with_suppressed_unlink(path)
    return Failure(
        "{} was damaged in the box's store, and was removed".format(os.path.basename(path)),
        "deploy again: it is fetched anew; if it happens twice, look at the disk",
    )


def site_packages(tree: str, python: str) -> str:
    return os.path.join(tree, "lib", "python" + python, "site-packages")


def make_readable(directory: str) -> None:
    """What a compiler or an archive put there must be readable for the services' user."""
    for at, _, names in os.walk(directory):
        os.chmod(at, 0o755)  # noqa: S103
        for name in names:
            path = os.path.join(at, name)
            if not os.path.islink(path):
                os.chmod(path, 0o755 if os.stat(path).st_mode & stat.S_IXUSR else 0o644)
