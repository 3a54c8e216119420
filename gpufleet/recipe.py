"""What stacks and models say by trait: flags and variables that count only where a box, or an instance, is so."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gpufleet.schema import Args, Data, Env, worded
from gpufleet.traits import is_trait

Engine = Literal["vllm", "lmdeploy"]
Arch = Annotated[str, worded(r"^(cpu|sm\d{2,3})$", "cpu, or a compute capability such as sm75")]
Count = Annotated[int, Field(ge=1)]


def _trait(name: str) -> str:
    if not is_trait(name):
        raise ValueError("is no trait: write one such as sm75, nvlink, pcie, sm75_nvlink, nv2, gpus2 or cpu")
    return name


Trait = Annotated[str, AfterValidator(_trait)]


class ByTrait(Data):
    """Flags and variables for one trait; later traits (see docs/reference/inventory.md) are stronger."""

    args: Args = {}
    env: Env = {}


class ModelByTrait(ByTrait):
    """The same of a model, with what a recipe says besides."""

    streams: Count | None = None
    tensor_parallel_size: Count | None = None


class Recipe(ModelByTrait):
    """How a model is served by one engine.

    + streams: requests at once for which CUDA graphs are captured
    + tensor_parallel_size: GPUs of an instance; default: the fewest that hold it
    """

    by_trait: dict[Trait, ModelByTrait] = {}
