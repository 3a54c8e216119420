"""Rules about names and values that an engine does not know: misspelt, of another version, another engine's."""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet import engines
from gpufleet.plan import BoxPlan, Instance
from gpufleet.rules.base import Said, rule
from gpufleet.rules.look import source_of


def _known(plan: BoxPlan) -> Iterator[tuple[Instance, engines.Engine]]:
    """Instances whose stack names a table of flags."""
    for instance in plan.instances:
        table = instance.stack.table
        if table is not None:
            yield instance, table


@rule(
    "GF505",
    "unknown-flag",
    level="error",
    source="field-problems 59; the engines' own parsers: unrecognized arguments",
    remedy="The nearest right name; a flag of a fork goes into `more_flags` of the stack's page.",
)
def unknown_flag(plan: BoxPlan) -> Said:
    """The engine does not know a flag and ends at start: it is misspelt, of another version, or of another engine."""
    for instance, table in _known(plan):
        for flag, value in instance.args.items():
            if value is None or table.knows_flag(flag):
                continue
            near = table.nearest(flag)
            others = [name for name in engines.who_knows(flag) if name != table.name]
            whose = f"; known to {', '.join(others)}" if others else ""
            source = source_of(instance.flags, flag)
            yield (
                f"{instance.name}: {instance.stack.name} does not know {flag} ({source}){whose}",
                f"write {near!r}" if near and not others else f"take {flag} out, or name another stack",
            )


@rule(
    "GF506",
    "unknown-variable",
    level="warning",
    source="field-problems 46; vLLM 0.27.1, envs.py: Unknown vLLM environment variable",
    remedy="The nearest right name; one of a patch or a fork goes into `more_env` of the stack's page.",
)
def unknown_variable(plan: BoxPlan) -> Said:
    """A variable with the engine's prefix that the engine does not know, such as VLLM_ATTENTION_BACKEND in newer
    versions: it warns and goes on without."""
    for instance, table in _known(plan):
        for name in instance.env:
            if table.owns(name) and not table.knows_variable(name) and not _of_a_patch(instance, name):
                near = table.nearest_variable(name)
                flag = NOW_FLAGS.get(name)
                if flag and table.knows_flag(flag):
                    remedy = f'take it out; now it is a flag: serve_args = {{"{flag}": "{instance.env[name]}"}}'
                else:
                    remedy = f"write {near}" if near else f"take {name} out of serve_env"
                yield (
                    f"{instance.name}: {instance.stack.name} does not know {name} "
                    f"({source_of(instance.variables, name)})",
                    remedy,
                )


# Variables of older engines that are flags now.
NOW_FLAGS = {"VLLM_ATTENTION_BACKEND": "attention-backend"}
# Variables that only a patch reads, and what a stack with such a patch provides.
OF_PATCHES = {
    "VLLM_QWOPUS_MTP_BF16_DRAFT": ("mtp-bf16-draft", "mtp-bf16-fc"),
    "VLLM_SM75_SPEC_SYNC_MODE": ("spec-sync-mode",),
}


def _of_a_patch(instance: Instance, name: str) -> bool:
    return name in OF_PATCHES and instance.stack.engine == "vllm"


@rule(
    "GF514",
    "value-not-a-choice",
    level="error",
    source="the engines' own parsers: invalid choice",
    remedy="One of the values that the finding names.",
)
def value_not_a_choice(plan: BoxPlan) -> Said:
    """A flag that takes certain values only has another one; the engine ends at start."""
    for instance, table in _known(plan):
        for flag, value in instance.args.items():
            choices = table.flag(flag).choices if table.knows_flag(flag) else ()
            if choices and isinstance(value, str | int) and not isinstance(value, bool) and str(value) not in choices:
                yield (
                    f"{instance.name}: {flag} is {value!r} ({source_of(instance.flags, flag)})",
                    f"use one of {', '.join(choices)}",
                )


@rule(
    "GF515",
    "switch-without-no",
    level="error",
    source="the engines' own parsers: unrecognized arguments",
    remedy="Take the flag out (`None`): it is off by itself.",
)
def switch_without_no(plan: BoxPlan) -> Said:
    """A switch is `False` that has no `no-` form in this engine, so there is no way to write it."""
    for instance, table in _known(plan):
        for flag, value in instance.args.items():
            if value is False and table.knows_flag(flag) and instance.stack.engine == "vllm":
                known = table.flag(flag)
                if known.kind == "switch" and not known.negatable and not flag.startswith("no-"):
                    yield f"{instance.name}: {flag} has no opposite", f'serve_args = {{"{flag}": None}}'


@rule(
    "GF512",
    "patch-variable-ignored",
    level="warning",
    source="vLLM 0.27.1 warns of unknown variables and goes on",
    remedy="A stack with the patch; or take the variable out.",
)
def patch_variable_ignored(plan: BoxPlan) -> Said:
    """A variable that only a patch reads is set for a stack without the patch: it does nothing."""
    for instance in plan.instances:
        for name, provided in OF_PATCHES.items():
            missing = not set(provided) & set(instance.stack.provides)
            if instance.env.get(name) and _of_a_patch(instance, name) and missing:
                yield (
                    f"{instance.name}: {instance.stack.name} does not know {name}",
                    f"take it out of serve_env, or use a stack that provides {provided[0]}",
                )


@rule(
    "GF527",
    "foreign-flag",
    level="warning",
    source="the engines' own parsers: two engines have few names in common",
    remedy="The name that the instance's own engine has for it.",
)
def foreign_flag(plan: BoxPlan) -> Said:
    """A flag or a variable was given that only another kind of engine knows; it is left out for this instance.
    Information when another instance of the box has that engine, for which it was meant.
    """
    kinds = {instance.stack.engine for instance in plan.instances}
    for instance in plan.instances:
        engine = instance.stack.engine
        for name, source in instance.foreign.items():
            yield (
                f"{instance.name}: {name} ({source}) is no flag or variable of {engine}, and is left out",
                f"if it was meant for {instance.name}, use the name that {engine} has for it",
                "info" if len(kinds) > 1 else "warning",
            )
