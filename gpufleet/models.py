"""The catalogue of models: where each comes from, what it needs to be served, how an answer of it is recognised."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import Annotated

from pydantic import Field, model_validator

from gpufleet.architecture import Architecture
from gpufleet.catalogue import Entry
from gpufleet.errors import ConfigError
from gpufleet.recipe import Count, Engine, ModelByTrait, Recipe, Trait
from gpufleet.schema import AbsolutePath, Args, Data, Env, Name, OneLine, RelativePath, Sha256, Url, worded
from gpufleet.settings import Port

HubRepo = Annotated[
    str, worded(r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$", "a repository of the hub, owner/name")
]
Commit = Annotated[str, worded(r"^[0-9a-f]{40}$", "a whole commit: 40 digits of 0-9 and a-f")]


class File(Data):
    """Size in bytes and sha256 of one file."""

    size: Annotated[int, Field(ge=0)]
    sha256: Sha256


class Source(Data):
    """Where a model comes from: a repository of the hub, an http address, or a directory that is on the box already.

    + hub: `owner/name`; with `commit`, the state of it, and `files`
    + http: an address below which `files` are
    + path: on the box; with `files` it is known what should be in it
    """

    hub: HubRepo | None = None
    commit: Commit | None = None
    http: Url | None = None
    path: AbsolutePath | None = None
    files: dict[RelativePath, File] = {}

    @model_validator(mode="after")
    def _one_of(self) -> Source:
        given = [name for name in ("hub", "http", "path") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give one of `hub`, `http` and `path`, not {' and '.join(given) or 'none'}")
        if (self.hub is None) != (self.commit is None):
            raise ValueError("`hub` and `commit` go together: the commit says which state of the repository it is")
        if not self.files and self.path is None:
            raise ValueError(f"`{given[0]}` needs `files`; `gpufleet models add` writes them")
        return self


class MtpHead(Data):
    """Another MTP head in place of the checkpoint's own.

    + file: which of the source's files it is; it lies under the same name in the model's directory
    """

    source: Source
    file: RelativePath = "model-mtp.safetensors"

    @model_validator(mode="after")
    def _named(self) -> MtpHead:
        if self.source.files and self.file not in self.source.files:
            raise ValueError(f"{self.file!r} is not among the files of its source")
        return self

    @property
    def identity(self) -> str:
        """The sha256 of its file, or where it lies when that is not known."""
        if self.file in self.source.files:
            return self.source.files[self.file].sha256
        return f"{self.source.path}/{self.file}"


class Expectation(Data):
    """How a right answer is recognised: the same text twice at temperature 0, or a text it contains."""

    deterministic: bool = False
    contains: str | None = None


class Gate(Data):
    """What an instance must show before it counts as serving.

    + accepted: with speculation, some drafted token must be accepted
    + context_tokens: of a long prompt, less than the setting `rollout.gate_context`; 0: none is asked
    + tools, images: whether a tool call and an image are asked; default: where the flags say that they are served
    + tokens_per_second: published for one stream, by trait; less is a warning while the box has no history
    """

    prompt: OneLine = "What is 17 + 25? Answer with the number only."
    max_tokens: Annotated[int, Field(ge=1)] = 512  # a model that thinks has to come to its answer
    expect: Expectation = Expectation()
    timeout: Annotated[int, Field(ge=1)] = 1800  # seconds from the start to the first completion
    accepted: bool = False
    context_tokens: Annotated[int, Field(ge=0)] | None = None
    tools: bool | None = None
    images: bool | None = None
    tokens_per_second: dict[Trait, Annotated[float, Field(gt=0)]] = {}


class Model(Entry):
    """One model. `args`, `env` and `by_trait` are its recipe for vLLM; `engines` has those for others."""

    revision: Name
    source: Source
    mtp_head: MtpHead | None = None
    served_name: Name
    aliases: list[Name] = []  # further names that clients may ask for
    chat_template: RelativePath | None = None  # a file beside the page, in place of the checkpoint's own
    architecture: Architecture | None = None  # without it nothing is said of memory
    port: Port | None = None  # of its first instance, unless it is taken
    streams: Count | None = None
    tensor_parallel_size: Count | None = None
    args: Args = {}
    env: Env = {}
    by_trait: dict[Trait, ModelByTrait] = {}
    engines: dict[Engine, Recipe] = {}
    gate: Gate = Gate()

    @cached_property
    def recipes(self) -> dict[str, Recipe]:
        """The recipe by engine; empty for an engine the model says nothing of."""
        own = Recipe(
            args=self.args,
            env=self.env,
            by_trait=self.by_trait,
            streams=self.streams,
            tensor_parallel_size=self.tensor_parallel_size,
        )
        return {"vllm": own, "lmdeploy": Recipe()} | self.engines

    @property
    def template(self) -> str | None:
        """The text of its `chat_template`. Raises ConfigError."""
        if self.chat_template is None:
            return None
        try:
            return (self.path.parent / self.chat_template).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            where = f"{self.path.parent.name}/{self.path.name}: chat_template"
            remedy = f"put the file beside the page, as {self.path.parent / self.chat_template}"
            raise ConfigError([f"{where}: {self.chat_template} cannot be read ({error}); {remedy}"]) from None

    @property
    def directory(self) -> str:
        """What follows `models/<name>/` on the box: the revision, with a replaced MTP head one of its own."""
        if self.mtp_head is None:
            return self.revision
        made_of = json.dumps([self.revision, self.source.path, self.mtp_head.file, self.mtp_head.identity])
        return f"{self.revision}+{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"

    @property
    def places(self) -> list[str]:
        """Directories of the box that it is served from beside its own."""
        sources = [self.source, self.mtp_head.source] if self.mtp_head else [self.source]
        return [source.path for source in sources if source.path]

    @property
    def link(self) -> str | None:
        """The directory of the owner that it is served from as it is; None when it has one of its own."""
        return None if self.mtp_head else self.source.path

    @property
    def digest(self) -> str:
        """Of what is served: other files are another model, the same ones from elsewhere are not."""
        files = {name: file.sha256 for name, file in sorted(self.source.files.items())}
        made_of = [self.source.path, files, self.mtp_head and [self.mtp_head.file, self.mtp_head.identity]]
        return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()

    @property
    def size_mib(self) -> int:
        """What fetching it takes on disk: nothing for what is on the box already."""
        sources = [self.source, self.mtp_head.source] if self.mtp_head else [self.source]
        return sum(file.size for source in sources if not source.path for file in source.files.values()) >> 20
