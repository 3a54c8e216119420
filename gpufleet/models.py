"""The catalogue of models: where each comes from, what it needs to be served, how an answer of it is recognised."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated

from pydantic import Field, model_validator

from gpufleet.architecture import Architecture
from gpufleet.catalogue import Entry
from gpufleet.recipe import Count, Engine, ModelByTrait, Recipe, Trait
from gpufleet.schema import AbsolutePath, Args, Data, Env, Name, OneLine, RelativePath, Sha256, Url
from gpufleet.settings import Port


class File(Data):
    """Size in bytes and sha256 of one file."""

    size: Annotated[int, Field(ge=0)]
    sha256: Sha256


class Source(Data):
    """Where a model comes from: an http address with its files, or a directory that is on the box already."""

    http: Url | None = None
    files: dict[RelativePath, File] = {}
    path: AbsolutePath | None = None

    @model_validator(mode="after")
    def _one_of(self) -> Source:
        if (self.http is None) == (self.path is None) or (self.http is not None) != bool(self.files):
            raise ValueError("give either `http` with `files`, or `path`")
        return self


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
    served_name: Name
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
    def size_mib(self) -> int:
        """What fetching it takes on disk."""
        return sum(file.size for file in self.source.files.values()) >> 20
