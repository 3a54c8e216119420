"""What a runtime is made of besides its lock: wheels and sources that are patched, what is compiled on a box."""

from __future__ import annotations

import ast
import warnings
from typing import Annotated

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion
from packaging.version import Version as Release
from pydantic import AfterValidator, Field, model_validator

from gpufleet.schema import Data, Env, Name, OneLine, RelativePath, Sha256, Url, worded

Version = Annotated[str, worded(r"^[A-Za-z0-9][A-Za-z0-9.+!_-]*$", "a version, such as 2.11.0+cpu")]
Commit = Annotated[str, worded(r"^[0-9a-f]{40}$", "a whole commit: 40 digits of 0-9 and a-f")]
Archive = Annotated[
    str, worded(r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,199}\.tar\.gz$", "the name of a file that ends in .tar.gz")
]
Size = Annotated[int, Field(ge=1)]  # bytes of a file as published, for what is foretold of a deploy
Script = Annotated[str, worded(r"^[A-Za-z0-9._-]+\.py$", "the name of a file that ends in .py")]


def _release(text: str) -> str:
    try:
        Release(text)
    except InvalidVersion:
        raise ValueError("is no version of a Python package, such as 0.27.1") from None
    return text


def _wheel_name(text: str) -> str:
    try:
        parse_wheel_filename(text)
    except InvalidWheelFilename as error:
        raise ValueError(f"is no name of a wheel: {error}") from None
    return text


Pep440 = Annotated[Version, AfterValidator(_release)]
# With room for the local version that a repacked one gets.
Filename = Annotated[
    str,
    worded(r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,199}\.whl$", "the name of a file that ends in .whl"),
    AfterValidator(_wheel_name),
]


def _requirement(text: str) -> str:
    try:
        Requirement(text)
    except InvalidRequirement as error:
        raise ValueError(f"not a requirement like 'flashinfer-python==0.6.16': {str(error).splitlines()[0]}") from None
    return text


def _python(text: str) -> str:
    """Checked here: on a box it would be found after the hour in which its extensions are compiled."""
    try:
        with warnings.catch_warnings(action="ignore"):
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"is no line of Python: {str(error).splitlines()[0]}") from None
    return text


Required = Annotated[OneLine, AfterValidator(_requirement)]
Check = Annotated[OneLine, AfterValidator(_python)]


class Uv(Data):
    """The uv that installs a runtime, pinned by the hash of its linux x86_64 wheel."""

    version: Pep440
    sha256: Sha256
    size: Size | None = None


class GitFile(Data):
    """A file of a git repository, and what it must hold."""

    path: RelativePath
    sha256: Sha256


class GitPatches(Data):
    """Patches of somebody else: files of a git repository at one commit, applied in this order."""

    git: Url  # mirrors.git may take the place of its host
    commit: Commit
    files: Annotated[list[GitFile], Field(min_length=1)]


class Patched(Data):
    """Something that may be patched: by a folder of files/patches, or by files of a git repository."""

    patches: Name | None = None
    patches_from: GitPatches | None = None

    @model_validator(mode="after")
    def _one_series(self) -> Patched:
        if self.patches and self.patches_from:
            raise ValueError("has both `patches` and `patches_from`; keep one")
        return self


class Wheel(Patched):
    """A wheel that is repacked, patched where it says so, before it is installed."""

    name: Name
    version: Pep440
    filename: Filename
    sha256: Sha256
    size: Size | None = None
    url: Url | None = None  # where it is when no package index has it
    rename: Name | None = None  # the distribution's name in the runtime
    drop_requires: list[Name] = []
    replace_requires: list[Required] = []  # each in place of what its metadata requires of that distribution

    @model_validator(mode="after")
    def _one_fate(self) -> Wheel:
        fates = [canonicalize_name(it) for it in self.drop_requires]
        fates += [canonicalize_name(Requirement(it).name) for it in self.replace_requires]
        if twice := sorted({it for it in fates if fates.count(it) > 1}):
            raise ValueError(f"drop_requires and replace_requires name {', '.join(twice)} more than once; keep one")
        return self


class Source(Patched):
    """Pure Python packages of a git repository at one commit, made into a wheel without running any of its code.

    The wheel asks for nothing: what it needs is in the stack's lock.
    """

    name: Name
    version: Pep440
    git: Url
    commit: Commit
    sha256: Sha256  # of its packages' files, see gpufleet.wheelhouse.source
    packages: Annotated[list[RelativePath], Field(min_length=1)]  # folders of the repository


class Compile(Data):
    """An extension that would otherwise be compiled at the first request.

    The script (files/compile) runs in the new runtime for each architecture of the box, with the stack's toolkit in
    CUDA_HOME and that architecture in TORCH_CUDA_ARCH_LIST, and needs no GPU.
    """

    name: Name
    script: Script
    into: RelativePath  # the folder below site-packages that it fills; like boxes get it as files


class Fetch(Data):
    """A git repository that a build takes from the network by itself, at what its own files pin.

    For reading and for saying so: gpufleet neither fetches nor checks it. `mirrors.git` may take its host's place.
    """

    git: Url
    at: Version  # a commit, or a tag


class Build(Data):
    """A distribution that is compiled from its source archive on one box, with the stack's toolkit.

    Like boxes get the wheel that came of it. Nothing is isolated: what it is built with is in a lock of its own.
    """

    name: Name
    version: Pep440
    filename: Archive
    sha256: Sha256
    url: Url | None = None  # where the archive is when no package index has it
    patches: Name | None = None  # a folder of files/patches
    lock: (
        Name  # files/locks/<lock>-py311.txt, one for each Python of the stack: the build's environment, torch included
    )
    env: Env = {}  # stronger than what is computed: MAX_JOBS too
    fetches: list[Fetch] = []

    @property
    def drop_requires(self) -> list[Name]:
        """What it asks for is as its archive says."""
        return []
