"""A runtime: one stack in a directory named by its content, complete or absent.

It is made aside, in `.<name>.building`, compiled for and verified there, and renamed when all of it is right: so its
name never leads to anything half made, also after a power cut. What an earlier attempt left is thrown away: the files
it was made of are in the box's store.
"""

from __future__ import annotations

import os

from hostkit import compile, events, files, install, reach, space, state, store, verify

RUNTIMES = os.path.join(files.ROOT, "runtimes")


def run(spec: dict) -> dict:
    """Install the runtime `name`, from files that are in the store.

    + python: minor version, `3.11`; uv: {filename, sha256} of its wheel; lock: text of the hashed requirements
    + files: [{filename, sha256, size}], the wheels of the lock and those that no lock names
    + toolkit: `13-0` or null; archs: ["sm75"]; compile: [{name, script, into}], see hostkit.compile
    + compiled: {filename, sha256} of an archive in the store with what they fill, or null
    + verify: lines of Python that must run in it; versions: {distribution: version}; env: of its services; gpus: how
      many cards it must see; torch_cuda: the CUDA torch must be built for, see hostkit.verify
    + instances: names of those that run on it; facts: what is written into its mark of completeness
    Returns {"path", "verified", "compiled"}, the last an archive for like boxes, see hostkit.compile, or null.
    """
    directory = os.path.join(RUNTIMES, spec["name"])
    if files.is_complete(directory):
        return answer(directory)
    os.makedirs(RUNTIMES, exist_ok=True)
    reach.require(RUNTIMES)
    building = os.path.join(RUNTIMES, ".{}.building".format(spec["name"]))
    if os.path.lexists(building):
        events.log("an earlier install of {} did not end: beginning it again".format(spec["name"]))
        files.remove(building)
    os.makedirs(building)
    try:
        with space.told_when_full(building, spec["name"]):
            make(spec, directory, os.path.join(building, "tree"), building)
    finally:
        files.remove(building)
    return answer(directory)


def make(spec: dict, directory: str, tree: str, building: str) -> None:
    known = compile.passed_on(spec)
    install.environment(spec, tree, building, byte_code=not (known and known.get("byte_code")))
    compiled = compile.run(spec, tree, os.path.join(building, "scratch"), known)
    verified = verify.run(spec, directory, tree, building)
    wanted = [item["sha256"] for item in spec["files"]]
    facts = {**spec["facts"], "files": wanted, "uv": spec["uv"], "verified": verified, "compiled": compiled}
    state.doubt(spec["instances"])  # a runtime that lost its mark may be what they run on now
    files.complete(tree, facts)
    gone = os.path.join(RUNTIMES, ".{}.gone".format(spec["name"]))
    files.remove(gone)
    if os.path.lexists(directory):  # an owner may have put a link there
        os.rename(directory, gone)
    os.rename(tree, directory)
    files.sync_directory(RUNTIMES)
    files.remove(gone)


def answer(directory: str) -> dict:
    """What the mark of a complete runtime says; its archive only while the store has it."""
    mark = files.mark(directory)
    compiled = mark.get("compiled")
    if compiled and not store.has(compiled["filename"], compiled["sha256"], compiled["size"]):
        compiled = None
    return {"path": directory, "verified": mark.get("verified"), "compiled": compiled}
