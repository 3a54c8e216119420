"""Tokens per second of one stream, beside what this box did before."""

from __future__ import annotations

from statistics import median
from typing import Callable, Optional, Sequence

from hostkit.errors import Failure
from hostkit.gate_http import Client, Reply

TOKENS = 128
TRIES, MORE = 2, 2  # the first compiles and fills caches; more where the floor is not reached
PUBLISHED_SHARE = 0.75  # of the published figure, below which there is a warning
PROMPT = "Count from 1 upwards, one number a line. Do not stop."
OWN = ("vllm:generation_tokens_total", "vllm:prompt_tokens_total")

Ask = Callable[..., Reply]


def measure(client: Client, ask: Ask, wanted: dict, history: Sequence[dict]) -> tuple[Optional[float], list[str]]:
    """(tokens per second, the best of a few answers; warnings).

    + ask: (what, content, max_tokens, **more) -> Reply
    + wanted: {"floor": fraction of the median of the box's own history, "published": tokens/s or None, "tokens": of
      an answer}
    + history: the instance's last activations, {"tokens_per_second": …} each
    Raises Failure for one below the floor, unless other requests ran meanwhile.
    """
    tokens = int(wanted.get("tokens") or TOKENS)
    known = level(history, wanted["floor"])
    floor = wanted["floor"] * median(known) if known else 0.0
    best, busy = 0.0, False
    for attempt in range(TRIES + MORE):
        if attempt >= TRIES and best >= floor:
            break
        before = client.counters()
        reply = ask("the question for its speed", PROMPT, tokens, ignore_eos=True)
        if not reply.completion_tokens or reply.seconds <= 0:
            return None, ["its speed is not known: its answers do not count their tokens (`usage`)"]
        best = max(best, reply.completion_tokens / reply.seconds)
        busy = busy or _others(before, client.counters(), reply)
    best = round(best, 1)
    if best >= floor:
        return best, _beside_published(best, wanted.get("published")) if not known else []
    said = "it decodes {:g} tokens/s; the median of its last {} activations is {:.1f}, the floor {:.1f}".format(
        best, len(known), median(known), floor
    )
    if busy:
        return None, [said + ", but other requests ran meanwhile"]
    raise Failure(
        said,
        "look at power limit, clocks and PCIe width of the cards (`nvidia-smi -q -d PERFORMANCE`), at the CPU's "
        "governor and at what else runs there; if the new speed is meant, deploy once with "
        "`--data 'rollout={\"speed_floor\": 0}'`",
    )


def level(history: Sequence[dict], floor: float) -> list[float]:
    """The speeds that a new one is held against: those since the last that was taken although it was below the floor.

    Who deploys once without a floor, since a change costs speed, is not asked again at the next deploy.
    """
    found: list[float] = []
    for item in history:
        speed = item.get("tokens_per_second")
        if isinstance(speed, (int, float)) and speed > 0:
            found = [*found, float(speed)] if not found or speed >= floor * median(found) else [float(speed)]
    return found


def _beside_published(best: float, published: Optional[float]) -> list[str]:
    if not published or best >= published * PUBLISHED_SHARE:
        return []
    return [
        "it decodes {:g} tokens/s; {:g} are published for this model on such cards (docs/recipes.md)".format(
            best, published
        )
    ]


def _others(before: dict[str, float], after: dict[str, float], reply: Reply) -> bool:
    """Whether the engine has worked on more tokens than ours."""
    done = sum(after.get(name, 0.0) - before.get(name, 0.0) for name in OWN)
    return done > (reply.completion_tokens or 0) + (reply.prompt_tokens or 0) + 1
