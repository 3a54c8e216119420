"""Rules about how flags and variables are written."""

from __future__ import annotations

from gpufleet.dialect import DIALECTS
from gpufleet.environment import CACHES
from gpufleet.plan import BoxPlan, Instance
from gpufleet.rules.base import Said, rule
from gpufleet.rules.look import by_vllm, computed, from_stack, listed, mapping, source_of

CARDS = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")


@rule(
    "GF501",
    "flag-is-ours",
    level="error",
    source="two places for one value drift apart",
    remedy="The setting of the `serve` entry, `port` or `tensor_parallel_size`; the model by its page.",
)
def flag_is_ours(plan: BoxPlan) -> Said:
    """A flag is set that the plan sets itself, from a setting of its own: the port, the number of GPUs, the model, its
    configuration file. A warning for what names cards, which the plan does in any case: CUDA_VISIBLE_DEVICES,
    CUDA_DEVICE_ORDER, and `device-ids` where the stack sets it."""
    for instance in plan.instances:
        dialect = DIALECTS[instance.stack.engine]
        settings = {dialect.port: "port", dialect.tensor_parallel: "tensor_parallel_size"}
        for flag in (*settings, "config", "model"):
            ours = 1 if flag == dialect.port or (flag in settings and "cpu" not in instance.stack.arch) else 0
            history = instance.flags.trace.get(flag, [])
            for given in history[: len(history) - ours]:
                remedy = f"use the setting {settings[flag]} of the serve entry" if flag in settings else "take it out"
                yield f"{given.source} sets {flag}", remedy
        for values, name in [(instance.variables, name) for name in CARDS] + [(instance.flags, "device-ids")]:
            history = values.trace.get(name, [])
            if len(history) > 1 and history[-1].source.startswith("computed") and instance.gpus:
                remedy = f"take {name} out: the plan chooses the cards, by tensor_parallel_size and instances"
                yield f"{history[-2].source} sets {name}, which has no effect", remedy, "warning"


NO_SECRET = {
    "hf": "take it out; services are offline and need no token of a hub",
    "api": "take it out; put a proxy with the key before the port",
}


@rule(
    "GF502",
    "secret-in-settings",
    level="error",
    source="flags of a release can be read by everybody on the box, and a digest is no secret",
    remedy="Take it out; put a proxy that asks for the key before the port.",
)
def secret_in_settings(plan: BoxPlan) -> Said:
    """`api-key`, `hf-token`, `VLLM_API_KEY` or `HF_TOKEN` is among an instance's settings. They would end up in a
    release, whose digest is no secret either."""
    for instance in plan.instances:
        found = [flag for flag in ("api-key", "api-keys", "hf-token") if instance.args.get(flag)]
        found += [name for name in ("VLLM_API_KEY", "HF_TOKEN") if instance.env.get(name)]
        for name in found:
            yield f"{instance.name} has {name} in its settings", NO_SECRET["hf" if "hf" in name.lower() else "api"]


@rule(
    "GF503",
    "contradicting-switch",
    level="error",
    source="vLLM's loader takes the last of two lines",
    remedy="Write `False` for the flag instead of `no-…`.",
)
def contradicting_switch(plan: BoxPlan) -> Said:
    """A flag and its `no-` form are both on (or both off): which one wins depends on the order of lines."""
    for instance in plan.instances:
        for flag, value in instance.args.items():
            if isinstance(value, bool) and instance.args.get(f"no-{flag}") is value:
                yield f"{instance.name} has both {flag} and no-{flag}", f"write `{flag}: false` instead of no-{flag}"


@rule(
    "GF504",
    "value-misread",
    level="error",
    source="seen in vLLM 0.27.1",
    remedy="`True` or `False` without quotes; a value without the dash.",
)
def value_misread(plan: BoxPlan) -> Said:
    """The text `"true"` or `"false"` stands where a switch is meant, or a text begins with a dash: vLLM's loader turns
    the switch on and takes the word for the model, or takes the text for a flag."""
    for instance in plan.instances:
        for flag, value in instance.args.items():
            if isinstance(value, str) and value.lower() in ("true", "false"):
                yield f"{instance.name}: {flag} is the text {value!r}", f"write {flag}: True or False, without quotes"
            if isinstance(value, str) and value.startswith("-"):
                yield f"{instance.name}: {flag} is {value!r}, which is read as a flag", "give a value without the dash"


@rule(
    "GF507",
    "tools-half-configured",
    level="warning",
    source="field-problems 47; box C of the recipes",
    remedy="`enable-auto-tool-choice` and `tool-call-parser`, both.",
)
def tools_half_configured(plan: BoxPlan) -> Said:
    """Automatic choice of tools needs its switch and a parser. Without the switch clients that send tools get 400; with
    the switch alone vLLM does not start: an error."""
    for instance in by_vllm(plan):
        switch, parser = instance.args.get("enable-auto-tool-choice"), instance.args.get("tool-call-parser")
        if switch is True and not parser:
            yield (
                f"{instance.name}: enable-auto-tool-choice without tool-call-parser",
                'serve_args = {"tool-call-parser": "qwen3_coder"}, or the parser of the model\'s family',
                "error",
            )
        if parser and switch is not True:
            yield (
                f"{instance.name}: tool-call-parser without enable-auto-tool-choice",
                'serve_args = {"enable-auto-tool-choice": True}',
            )


def _names(instance: Instance) -> list[str]:
    """The names that clients may ask for."""
    given = instance.args.get(DIALECTS[instance.stack.engine].served_name)
    return [str(item) for item in given] if isinstance(given, list) else [str(given)] if given else []


@rule(
    "GF508",
    "served-name-twice",
    level="warning",
    source="box C of the recipes",
    remedy="No `served-model-name` in a layer, or one of its own in the `args` of a `serve` entry.",
)
def served_name_twice(plan: BoxPlan) -> Said:
    """Two different models of a box have one name: clients cannot tell which of them they talk to."""
    seen: dict[str, str] = {}
    for instance in plan.instances:
        for name in _names(instance):
            other = seen.setdefault(name, instance.model.name)
            if other != instance.model.name:
                flag = DIALECTS[instance.stack.engine].served_name
                entry = f'{{"model": "{instance.model.name}", "args": {{"{flag}": "{instance.model.name}"}}}}'
                given = source_of(instance.flags, flag) not in ("default", f"model {instance.model.name}")
                remedy = f"take {flag} out of serve_args" if given else f"give one another name: serve = [{entry}, …]"
                yield f"{other} and {instance.model.name} are both served as {name}", remedy


@rule(
    "GF517",
    "served-name-differs",
    level="info",
    source="box C of the recipes: a wrong name is a 404, and clients fall through to another backend",
    remedy="No `served-model-name`, or clients that ask for it.",
)
def served_name_differs(plan: BoxPlan) -> Said:
    """A model does not have a name that its page gives it, as `served_name` or among `aliases`. Clients that ask for
    that one get 404. LMDeploy answers to one name only."""
    for instance in plan.instances:
        names, dialect = _names(instance), DIALECTS[instance.stack.engine]
        wanted = [instance.model.served_name, *instance.model.aliases]
        lacking = [name for name in wanted if names and name not in names]
        if lacking:
            ours = dialect.several_names or instance.model.served_name in lacking
            yield (
                f"{instance.name} answers to {listed(names)}, its page says {listed(wanted)}",
                f"let clients ask for {names[0]}" + (f", or take {dialect.served_name} out" if ours else ""),
            )


@rule(
    "GF509",
    "foreign-path",
    level="warning",
    source="field-problems 23; box B of the recipes has stubs on its path, superseded",
    remedy="Leave PATH, PYTHONPATH and LD_LIBRARY_PATH to the plan.",
)
def foreign_path(plan: BoxPlan) -> Said:
    """A variable brings in code from beside the runtime: PYTHONPATH shadows its packages, a PATH of one's own hides its
    programs and the toolkit's, a foreign conda environment or the toolkit's `stubs` (which are for linking only) shadow
    its libraries."""
    for instance in plan.instances:
        for name in ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LD_PRELOAD"):
            value = instance.env.get(name) or ""
            bad = name != "LD_LIBRARY_PATH" or "stubs" in value or "conda" in value
            if value and bad and not computed(instance, name) and not from_stack(instance, name):
                source = source_of(instance.variables, name)
                yield f"{instance.name}: {name} is {value} ({source})", f"take {name} out of serve_env"


@rule(
    "GF510",
    "shared-cache",
    level="warning",
    source="field-problems 26 and 27; box C of the recipes",
    remedy="Leave the cache variables to the plan: a place for each instance and runtime.",
)
def shared_cache(plan: BoxPlan) -> Said:
    """A cache of compiled kernels is put where another instance or runtime has its own, or had: what it left there
    crashes the next one."""
    for instance in plan.instances:
        for name in CACHES:
            if instance.env.get(name) and not computed(instance, name):
                source = source_of(instance.variables, name)
                yield f"{instance.name}: {name} is {instance.env[name]} ({source})", f"take {name} out of serve_env"


@rule(
    "GF511",
    "flashqla-ignored",
    level="warning",
    source="vLLM 0.27.1: additional-config is not checked",
    remedy="A stack with FlashQLA; or take gdn_prefill_backend out.",
)
def flashqla_ignored(plan: BoxPlan) -> Said:
    """`gdn_prefill_backend: flashqla_legacy` is taken by any vLLM, and does nothing without the patch: Triton computes
    the prefill, and nothing says so."""
    for instance in by_vllm(plan):
        backend = mapping(instance, "additional-config").get("gdn_prefill_backend")
        if backend == "flashqla_legacy" and "flashqla" not in instance.stack.provides:
            yield (
                f"{instance.name}: {instance.stack.name} has no FlashQLA, Triton would be used",
                "take gdn_prefill_backend out of additional-config, or use a stack that provides flashqla",
            )


@rule(
    "GF513",
    "thinking-budget",
    level="error",
    source="the patch `thinking-budget`; vLLM 0.27.1's two model runners",
    remedy="A stack with the patch and the first model runner; or take the budget out.",
)
def thinking_budget(plan: BoxPlan) -> Said:
    """`default_thinking_token_budget` is a patch's: other engines refuse reasoning-config with it. With
    `VLLM_USE_V2_MODEL_RUNNER=1`, which knows no budget of the server's, the patched engine does not start."""
    for instance in by_vllm(plan):
        if "default_thinking_token_budget" not in mapping(instance, "reasoning-config"):
            continue
        if "thinking-budget" not in instance.stack.provides:
            yield (
                f"{instance.name}: {instance.stack.name} does not know default_thinking_token_budget",
                "take it out of reasoning-config, or use a stack that provides thinking-budget",
            )
        elif instance.env.get("VLLM_USE_V2_MODEL_RUNNER") == "1":
            yield (
                f"{instance.name}: the V2 model runner has no default thinking budget, and the engine does not start",
                'serve_env = {"VLLM_USE_V2_MODEL_RUNNER": "0"}, or take the budget out',
            )
