"""What an instance must show before it counts as serving, as the box is told it (hostkit/gate.py). No I/O.

Nothing of it is part of a release: another question restarts nothing.
"""

from __future__ import annotations

from typing import Any

from gpufleet.dialect import DIALECTS
from gpufleet.instance import Instance

EVERYWHERE = ("0.0.0.0", "::", "localhost")  # noqa: S104 - addresses at which the box itself answers too
SPEED_FLOOR = 0.5  # on GPUs; a CPU's speed is what its neighbours leave it
SPEED_TOKENS = 128


def gate_spec(instance: Instance) -> dict[str, Any]:
    """All that is asked of an instance, keys as hostkit.gate.run has them. Variables are not in it, so no secret is."""
    gate, args, dialect = instance.model.gate, instance.args, DIALECTS[instance.stack.engine]
    served = args[dialect.served_name]
    return {
        "host": host(instance),
        "model": served[0] if isinstance(served, list) else served,
        "prompt": gate.prompt,
        "max_tokens": gate.max_tokens,
        "expect": gate.expect.model_dump(exclude_none=True),
        "timeout": gate.timeout,
        "speculative": {"accepted": gate.accepted} if _speculates(instance) else None,
        "context": _context(instance),
        "tools": _calls_tools(instance) if gate.tools is None else gate.tools,
        "images": _sees(instance) if gate.images is None else gate.images,
        "log": _log(instance),
        "uuids": list(instance.uuids),
        "bus_ids": list(instance.bus_ids),
        "speed": _speed(instance),
    }


def host(instance: Instance) -> str:
    """Where the box itself asks the instance."""
    given = instance.args[DIALECTS[instance.stack.engine].host]
    return "127.0.0.1" if given in EVERYWHERE else str(given)


def _speculates(instance: Instance) -> bool:
    """Whether drafts are made and counted."""
    flag = DIALECTS[instance.stack.engine].speculative
    return bool(flag and instance.args.get(flag) and not instance.args.get("disable-log-stats"))


def _limit(instance: Instance) -> int | None:
    """The context in tokens as far as the plan knows it; vLLM says it on the box, LMDeploy does not."""
    found = instance.args.get(DIALECTS[instance.stack.engine].max_model_len)
    if isinstance(found, int) and not isinstance(found, bool) and found > 0:
        return found
    architecture = instance.model.architecture
    return architecture.max_positions if architecture and found is None else None


def _context(instance: Instance) -> dict[str, int] | None:
    most = instance.rollout.gate_context
    own = instance.model.gate.context_tokens
    tokens = min(size for size in (most, own, _limit(instance)) if size is not None)
    return {"tokens": tokens} if tokens else None


def _calls_tools(instance: Instance) -> bool:
    """Whether a tool call is taken out of the text: by a parser, for requests that leave the choice to the model."""
    args = instance.args
    automatic = instance.stack.engine != "vllm" or args.get("enable-auto-tool-choice") is True
    return automatic and bool(args.get("tool-call-parser"))


def _sees(instance: Instance) -> bool:
    """Whether images are served; of LMDeploy only the model's page can say it."""
    architecture, args = instance.model.architecture, instance.args
    if instance.stack.engine != "vllm" or architecture is None or not architecture.vision_mib:
        return False
    limits = args.get("limit-mm-per-prompt")
    none = isinstance(limits, dict) and limits.get("image") == 0
    return args.get("language-model-only") is not True and not none


def _log(instance: Instance) -> dict[str, list[dict[str, str]]]:
    page, architecture = instance.stack.log, instance.model.architecture
    facts = (instance.args, instance.env, instance.traits, architecture.family if architecture else None)
    promised = [] if _is_quiet(instance) else page.promised
    return {
        key: [{"line": item.line, "means": item.means} for item in lines if item.holds(*facts)]
        for key, lines in (("promised", promised), ("forbidden", page.forbidden))
    }


def _is_quiet(instance: Instance) -> bool:
    """Whether vLLM was told to log less than it does by itself, or in a way of the owner's own."""
    env = instance.env
    own = env.get("VLLM_CONFIGURE_LOGGING") == "0" or bool(env.get("VLLM_LOGGING_CONFIG_PATH"))
    return own or env.get("VLLM_LOGGING_LEVEL", "INFO").upper() not in ("INFO", "DEBUG")


def _speed(instance: Instance) -> dict[str, Any] | None:
    floor = instance.rollout.speed_floor
    if floor is None:
        if not instance.gpus:
            return None
        floor = SPEED_FLOOR
    published = instance.model.gate.tokens_per_second
    figures = [published[trait] for trait in instance.traits if trait in published]
    limit = _limit(instance)
    return {
        "floor": floor,
        "published": figures[-1] if figures else None,
        "tokens": min(SPEED_TOKENS, max(16, limit // 4)) if limit else SPEED_TOKENS,
    }
