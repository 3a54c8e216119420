"""The flags that a `serve` entry has to give, so that the plan has those of the service that runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpufleet.adopting_flags import change, same
from gpufleet.instance import Instance

# What is better than what was there: it is kept though the old service does not have it.
BETTER = {"enable-auto-tool-choice": "without it clients that send tools get 400, whatever tool-call-parser says"}
SIZES = ("cudagraph_capture_sizes", "max_cudagraph_capture_size")
Planned = Callable[[Mapping[str, Any]], Instance]


def fill(planned: Planned, entry: dict[str, Any], args: Mapping[str, Any]) -> None:
    """Put into the entry what its plan lacks of `args`; capture sizes as `streams` where the plan computes the same."""
    given = _given(planned(entry), args)
    streams = _streams(args)
    if streams is not None and _sizes_in(given):
        tried = {**entry, "streams": streams}
        tried["args"] = _without_sizes(_given(planned(tried), args))
        if same(args["compilation-config"], planned(tried).args.get("compilation-config")):
            entry["streams"], given = streams, tried["args"]
    if given:
        entry["args"] = given


def _given(base: Instance, args: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that differ from a plan's, and what it has of the model's page beside them, taken away."""
    differ = {flag: value for flag, value in args.items() if not same(value, base.args.get(flag))}
    return {flag: change(value, base.args.get(flag)) for flag, value in differ.items()} | _taken(base, args)


def _streams(args: Mapping[str, Any]) -> int | None:
    """The streams that capture sizes were made for, when they are the multiples that the plan computes."""
    config, speculative = args.get("compilation-config"), args.get("speculative-config")
    sizes = config.get("cudagraph_capture_sizes") if isinstance(config, dict) else None
    tokens = speculative.get("num_speculative_tokens") if isinstance(speculative, dict) else None
    if not isinstance(sizes, list) or not sizes or not isinstance(tokens, int):
        return None
    return len(sizes) if sizes == [(tokens + 1) * number for number in range(1, len(sizes) + 1)] else None


def _sizes_in(given: Mapping[str, Any]) -> bool:
    config = given.get("compilation-config")
    return isinstance(config, dict) and any(name in config for name in SIZES)


def _without_sizes(given: Mapping[str, Any]) -> dict[str, Any]:
    config = given.get("compilation-config")
    if not isinstance(config, dict):
        return dict(given)
    rest = {key: value for key, value in config.items() if key not in SIZES}
    others = {flag: value for flag, value in given.items() if flag != "compilation-config"}
    return {**others, **({"compilation-config": rest} if rest else {})}


def _taken(base: Instance, args: Mapping[str, Any]) -> dict[str, Any]:
    """What the model's page gives and the old service does not have, taken away; of mappings key by key."""
    found: dict[str, Any] = {}
    for flag, value in base.args.items():
        if flag in args or value is None or (flag in BETTER and args.get("tool-call-parser")):
            continue
        if not isinstance(value, dict):
            if _of_model(base, flag):
                found[flag] = None
            continue
        theirs = [key for key in value if _of_model(base, f"{flag}.{key}") and value[key] is not None]
        if theirs:
            found[flag] = None if len(theirs) == len(value) else dict.fromkeys(theirs)
    return found


def _of_model(base: Instance, dotted: str) -> bool:
    sources = [source for key, source in base.because.items() if key == dotted or key.startswith(f"{dotted}.")]
    return bool(sources) and all(source.startswith(f"model {base.model.name}") for source in sources)
