"""What is said of an adopted service: each flag of it, and what the instance has that it does not."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from gpufleet.adopting_args import BETTER
from gpufleet.adopting_flags import Written, leaves, same
from gpufleet.adopting_item import PROXY, Item
from gpufleet.dialect import DIALECTS
from gpufleet.instance import Instance

PARALLEL = ("pipeline-parallel-size", "data-parallel-size", "nnodes")
HOMES = ("/home/", "/root/", "/tmp/", "/var/tmp/", "/run/user/")  # noqa: S108 - nothing is written there


def of_engine(old: str | None, final: Instance) -> Iterator[Item]:
    """The engine's version, where it is another one."""
    new = (final.stack.flags or "").partition("-")[2] or None
    if old is None:
        why = f"its version cannot be told; {final.stack.name} takes its place"
        yield Item("changed", "version", None, new, why)
    elif old != new:
        why = f"no stack for these cards has that version; {final.stack.name} takes its place: read what changed"
        yield Item("changed", "version", old, new, why)


def of_flags(
    old: Written, args: Mapping[str, Any], told: Mapping[str, tuple[str, str]], final: Instance
) -> Iterator[Item]:
    """What is said of each flag of the old service, and of those it does not have; leaf by leaf.

    + old: as they were given; + args: those that the engine knows, without what settings of their own are for
    + told: what became of the others, see adopting_renamed
    """
    before, after = leaves(args), leaves(final.args)
    dialect = DIALECTS[final.stack.engine]
    computed = {dialect.port, dialect.tensor_parallel, "device-ids"}
    for flag, value in before.items():
        source, new = final.because.get(flag, ""), after.get(flag)
        if not same(value, new):
            yield Item("changed", flag, value, new, source or "the plan leaves it out")
        elif "serve entry" in source:
            yield Item("entry", flag, value, new, _over(final, flag))
        else:
            yield Item("default", flag, value, new, source)
        if isinstance(value, str) and value.startswith(HOMES):
            why = f"the service runs as gpufleet, and sees nothing of {value.split('/')[1]}: put the file elsewhere"
            yield Item("left", flag, value, new, why)
    for flag in sorted(computed & set(old.args)):
        value, new, why = old.args[flag], after.get(flag), final.because.get(flag, "")
        if flag == "device-ids" and not same(value, new):
            yield Item("changed", flag, value, new, "the instance's cards are its CUDA_VISIBLE_DEVICES, by UUID")
        elif not same(value, new):
            yield Item("changed", flag, value, new, why or "the plan leaves it out")
        else:
            yield Item("entry" if "serve entry" in why else "default", flag, value, new, why)
    for flag, value in after.items():
        if flag not in before and flag not in old.args:
            source = final.because.get(flag, "")
            yield Item("added", flag, None, value, BETTER.get(flag) or source)
    for flag, history in final.flags.trace.items():
        if history[-1].value is None and "serve entry" in history[-1].source and len(history) > 1:
            shown, source = history[-2].value, history[-2].source
            yield Item("removed", flag, None, None, f"{source} has {shown}; delete it there to take that")
    for flag, (new, why) in told.items():
        value = old.args[flag]
        if why:
            yield Item("changed", flag, value, new or None, why)
        else:
            known = final.stack.table.nearest(flag) if final.stack.table else None
            near = f"; the nearest it knows is {known}" if known else ""
            yield Item("left", flag, value, None, f"{final.stack.flags} does not know it{near}")
    for flag in old.secrets:
        yield Item("left", flag, "<hidden>", None, PROXY)
    for word in old.unread:
        yield Item("left", "command line", word, None, "it cannot be read as a flag: see what it is for")
    for flag in PARALLEL:
        if args.get(flag) not in (None, 1):
            yield Item("left", flag, args[flag], None, "the plan gives an instance cards for tensor parallelism only")


def _over(final: Instance, dotted: str) -> str:
    """What the entry's value overrides."""
    history = final.flags.trace.get(dotted) or ()
    *before, _ = history or (None,)
    shown = [given for given in before if given is not None and "serve entry" not in given.source]
    return f"over {shown[-1].value} by {shown[-1].source}" if shown else "nothing else gives it"


def held(facts: Mapping[str, Any], pids: Collection[int]) -> list[int]:
    """The cards on which one of these processes has memory."""
    return [
        gpu["index"]
        for gpu in facts.get("gpus") or []
        if any(item.get("pid") in pids for item in gpu.get("processes") or [])
    ]


def of_cards(has: Sequence[int], final: Instance) -> Iterator[Item]:
    """Which cards it has now, where the instance gets others."""
    if has and list(has) != sorted(final.gpus):
        why = "the best-joined that are free; the order of the entries decides which has the first choice"
        yield Item("changed", "gpus", list(has), sorted(final.gpus), why)
