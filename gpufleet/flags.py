"""Flags and variables of one instance: what was written for it, weakest first, then what is computed from that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gpufleet import engines
from gpufleet.dialect import DIALECTS, Dialect
from gpufleet.layers import Layer
from gpufleet.models import Model
from gpufleet.provenance import Given, Values
from gpufleet.recipe import ByTrait, ModelByTrait
from gpufleet.stacks import Stack

# Tokens of a step above which the engine captures nothing by itself (`max_cudagraph_capture_size`, vLLM 0.27.1).
LARGEST_CAPTURE = 512
PREFIXES = {"vllm": "VLLM_", "lmdeploy": "LMDEPLOY_"}  # of the variables each engine has for itself


@dataclass(frozen=True)
class Written:
    """Flags and variables of an instance before anything is computed; `foreign` are those of another engine."""

    args: Values
    env: Values
    foreign: dict[str, str]  # the name, and the layer that gave it


def written(stack: Stack, model: Model, layers: Iterable[Layer], traits: Sequence[str]) -> Written:
    """What stack, model, the stack's chosen options and the owner's layers give an instance with these traits."""
    args, env = Values(), Values()
    foreign: dict[str, str] = {}
    recipe = model.recipes[stack.engine]
    for page, source in ((stack, f"stack {stack.name}"), (recipe, f"model {model.name}")):
        _lay(args, env, source, page.args, page.env)
        by_trait: Mapping[str, ByTrait] = page.by_trait
        for trait in traits:
            if trait in by_trait:
                _lay(args, env, f"{source}, {trait}", by_trait[trait].args, by_trait[trait].env)
    for name in stack.chosen:
        option = stack.options[name]
        _lay(args, env, f"option {name} of stack {stack.name}", option.args, option.env)
    for layer in layers:
        # What only another kind of engine knows is left to that one: a box can have both.
        flags, variables = layer.values.get("serve_args", {}), layer.values.get("serve_env", {})
        others = [name for name in flags if foreign_flag(stack, name)]
        others += [name for name in variables if foreign_variable(stack, name)]
        foreign.update(dict.fromkeys(others, layer.source))
        own = [{name: value for name, value in given.items() if name not in others} for given in (flags, variables)]
        _lay(args, env, layer.source, *own)
    return Written(args, env, foreign)


def foreign_flag(stack: Stack, flag: str) -> bool:
    """Whether an engine of another kind knows the flag and this one does not."""
    if stack.table is None or stack.table.knows_flag(flag):
        return False
    return any(not name.startswith(f"{stack.engine}-") for name in engines.who_knows(flag))


def foreign_variable(stack: Stack, name: str) -> bool:
    """Whether a variable is by its prefix another engine's."""
    if stack.table is None or stack.table.owns(name):
        return False
    return name.startswith(tuple(PREFIXES[kind] for kind in PREFIXES if kind != stack.engine))


def _lay(args: Values, env: Values, source: str, flags: Mapping[str, Any], variables: Mapping[str, str]) -> None:
    args.lay(source, flags)
    env.lay(source, variables)


def said_of(
    key: Literal["streams", "tensor_parallel_size"],
    model: Model,
    stack: Stack,
    layers: Iterable[Layer],
    traits: Sequence[str],
) -> list[Given]:
    """All that was said of a number of the recipe, weakest first: the model's, by trait, then the owner's layers.

    A layer that takes it away leaves it to what is computed, whatever was said before.
    """
    recipe = model.recipes[stack.engine]
    pages: list[tuple[str, ModelByTrait]] = [(f"model {model.name}", recipe)]
    pages += [(f"model {model.name}, {trait}", recipe.by_trait[trait]) for trait in traits if trait in recipe.by_trait]
    found = [Given(source, value) for source, page in pages if (value := getattr(page, key)) is not None]
    for layer in layers:
        if key in layer.values:
            value = layer.values[key]
            found = [] if value is None else [*found, Given(layer.source, value)]
    return found


def compute_requests(args: Values, stack: Stack, model: Model, streams_given: Sequence[Given]) -> int | None:
    """Set `max-num-seqs` from the streams unless it was given; returns the streams in force.

    A model's recipe may have more requests than streams, one to spare for the scheduler; other streams keep the spare.
    """
    source = streams_given[-1].source if streams_given else ""
    streams: int | None = streams_given[-1].value if streams_given else None
    flag = DIALECTS[stack.engine].max_num_seqs
    given = args.source(flag)
    seqs = args.values.get(flag)
    ours = given is None or given.startswith(("stack ", "model "))
    if streams is not None and ours and not (seqs is not None and source.startswith("model ")):
        own = model.recipes[stack.engine].streams
        spare = seqs - own if isinstance(seqs, int) and own is not None else 0
        seqs = streams + max(spare, 0)
        args.lay(f"computed: streams {streams} ({source})", {flag: seqs})
    if streams is None and isinstance(seqs, int):
        streams = seqs
    return min(streams, seqs) if streams and isinstance(seqs, int) else streams


def compute_captures(args: Values, dialect: Dialect, streams: int | None) -> None:
    """CUDA graph sizes: with k speculative tokens each request has k+1 tokens a step (recipes.md; vllm #37865)."""
    tokens = speculative_tokens(args.values, dialect)
    if tokens < 1 or not streams or streams < 1 or dialect.compilation is None or args.values.get("enforce-eager"):
        return
    config = args.values.get(dialect.compilation)
    if dialect.compilation in args.values and not isinstance(config, dict):
        return  # taken away, or written in a way of the owner's own
    given = (config or {}).get("cudagraph_capture_sizes")
    step = tokens + 1
    if given is None and (config or {}).get("cudagraph_mode") != "NONE" and step * streams <= LARGEST_CAPTURE:
        sizes = [step * number for number in range(1, streams + 1)]
        many = f"{streams} streams" if streams > 1 else "1 stream"
        why = f"computed: multiples of {step} ({tokens} speculative tokens and 1) for {many}"
        args.lay(why, {dialect.compilation: {"cudagraph_capture_sizes": sizes}})
        given = sizes
    numbers = [size for size in given if type(size) is int] if isinstance(given, list) else []
    if numbers and (config or {}).get("max_cudagraph_capture_size") is None:
        why = "computed: the largest capture size, which the engine wants it to be"
        args.lay(why, {dialect.compilation: {"max_cudagraph_capture_size": max(numbers)}})


def compute_all_reduce(args: Values, stack: Stack, size: int, link: str | None) -> None:
    """Custom all-reduce off for more than two cards that are not all joined by NVLink: vLLM has none for them."""
    names = ("disable-custom-all-reduce", "no-disable-custom-all-reduce")
    mesh = link is not None and link.startswith("NV")
    if stack.engine == "vllm" and size > 2 and not mesh and not any(name in args.values for name in names):
        args.lay(f"computed: {size} cards that are not all joined by NVLink", {names[0]: True})


def compute_runner(args: Values, env: Values) -> None:
    """The first model runner for a thinking budget, if only the stack asks for the second, which would not start."""
    config, name = args.values.get("reasoning-config"), "VLLM_USE_V2_MODEL_RUNNER"
    budget = isinstance(config, dict) and "default_thinking_token_budget" in config
    if budget and env.values.get(name) == "1" and (env.source(name) or "").startswith("stack "):
        env.lay("computed: the second model runner has no default thinking budget", {name: "0"})


def speculative_tokens(args: Mapping[str, Any], dialect: Dialect) -> int:
    """Tokens drafted in each step; 0 without speculation."""
    config = args.get(dialect.speculative) if dialect.speculative else None
    tokens = config.get("num_speculative_tokens") if isinstance(config, dict) else None
    return tokens if isinstance(tokens, int) and not isinstance(tokens, bool) else 0
