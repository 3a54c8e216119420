"""The proof that an instance serves: its service stays up, real questions are answered, the log says what it owes.

/health alone proves nothing: vLLM says 200 while completions fail with 500.
"""

from __future__ import annotations

import time
from typing import Any, Optional, Sequence

from hostkit import events, gate_checks, gate_log, gate_speed, gate_xid
from hostkit.errors import Failure
from hostkit.gate_http import Client, Refused, Reply, Unanswered
from hostkit.gate_start import Start

DRAFTS = "vllm:spec_decode_num_drafts_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
LONG = 64  # tokens of an answer in which something must be accepted
LEAST_SECONDS = 60  # for an answer, however long the start took
LATER_SECONDS = 600  # for each after the first, at most: 260,000 tokens of a prompt at 900 a second take half of it
REFUSALS = {
    401: "the instance wants an API key, which the gate has not: take VLLM_API_KEY and api-key away, and let a proxy "
    "in front of it ask for keys",
    404: "see that served-model-name is what the model's page says",
}


def run(
    unit: str, port: int, wanted: dict, began: float, old: Optional[int], history: Sequence[dict] = ()
) -> dict[str, Any]:
    """Wait until the instance answers, then prove it.

    + wanted: {"host": where it listens, "model": served name, "prompt", "max_tokens",
      "expect": {"deterministic": true} and/or {"contains": text},
      "speculative": null | {"accepted": whether drafted tokens must be accepted},
      "timeout": seconds to the first completion,
      "context": null | {"tokens"}, "tools": bool, "images": bool, "bus_ids": of its cards,
      "log": {"promised": [{"line": regex, "means"}], "forbidden": [...]},
      "speed": null | {"floor", "published", "tokens"}}; what is not in it is not asked
    + began: when it was started, in seconds since the epoch
    + old: the process that is being replaced; while it lives, nothing that answers is the new one
    + history: the instance's last activations, for the floor of its speed
    Returns {"completion", "drafts", "accepted", "context_tokens", "tokens_per_second", "ready_seconds",
    "first_completion_at": by time.monotonic(), "warnings"}. Raises Failure naming what the log gives as the reason.
    """
    return Gate(unit, port, wanted, began, old).run(history)


def wait(unit: str, port: int, wanted: dict, began: float, old: Optional[int]) -> None:
    """Wait until the instance answers, and prove nothing more: of a release whose own question is not known here."""
    Gate(unit, port, wanted, began, old).start.wait()


class Gate:
    """One look at one instance, from its start on."""

    def __init__(self, unit: str, port: int, wanted: dict, began: float, old: Optional[int]) -> None:
        self.unit, self.wanted = unit, wanted
        self.client = Client(wanted["host"], port)
        self.start = Start(unit, self.client, wanted["timeout"], began, old)
        self.first_until = time.monotonic() + wanted["timeout"]
        self.answered: Optional[float] = None
        self.most: Optional[int] = None  # tokens of an answer: an engine refuses more than its context has room for

    def run(self, history: Sequence[dict]) -> dict[str, Any]:
        wanted, start, cards = self.wanted, self.start, self.wanted.get("bus_ids") or []
        xids = gate_xid.read(cards)
        start.wait()
        limit = self.client.context(wanted["model"])
        self.most = max(1, limit // 2) if limit else None
        counted = self.client.counters()
        text, check = gate_checks.right(self.ask, wanted)
        self.answered = time.monotonic()
        check()
        warnings = gate_log.check(self.unit, start.invocations, start.began, wanted.get("log") or {}, start.whole)
        if start.crashes:
            warnings.append("it crashed {} times before it served: {}".format(start.crashes, self._first_error()))
        if wanted.get("tools"):
            warnings += gate_checks.tool_call(self.ask, wanted["max_tokens"])
        if wanted.get("images"):
            gate_checks.image(self.ask, wanted["max_tokens"])
        tokens, said = self._context()
        speed, slow = self._speed(history)
        drafts, accepted = self._speculation(counted)
        gate_xid.check(xids, cards)
        start.check_up()
        return {
            "completion": text[:200],
            "drafts": drafts,
            "accepted": accepted,
            "context_tokens": tokens,
            "tokens_per_second": speed,
            "ready_seconds": start.ready,
            "first_completion_at": self.answered,
            "warnings": warnings + said + slow,
        }

    def ask(self, what: str, content: Any, most: int, **more: Any) -> Reply:
        """One chat completion. Raises Failure for all that is none, with what the log has to say."""
        later = min(self.wanted["timeout"], LATER_SECONDS)
        left = later if self.answered else self.first_until - time.monotonic()
        most = min(most, self.most or most)
        try:
            return self.client.chat(gate_checks.body(self.wanted, content, most, more), max(left, LEAST_SECONDS))
        except Refused as error:
            self.start.check_up()
            lines, known = self.start.lines(), REFUSALS.get(error.status)
            logged = gate_log.reason(lines) if error.status >= 500 else ""
            raise Failure(
                "{} fails with {}: {}{}".format(what, error.status, error.detail, logged and "; its log: " + logged),
                known or gate_log.remedy(self.unit, lines),
            )
        except Unanswered as error:
            self.start.check_up()
            raise Failure("{} does not answer: {}".format(what, error), gate_log.remedy(self.unit, self.start.lines()))

    def _context(self) -> tuple[Optional[int], list[str]]:
        wanted = self.wanted.get("context")
        if not wanted:
            return None, []
        events.log("{} answers; it is asked a prompt of up to {} tokens".format(self.unit, wanted["tokens"]))
        return gate_checks.long_prompt(self.client, self.ask, wanted, self.wanted["model"])

    def _speed(self, history: Sequence[dict]) -> tuple[Optional[float], list[str]]:
        wanted = self.wanted.get("speed")
        return gate_speed.measure(self.client, self.ask, wanted, history) if wanted else (None, [])

    def _speculation(self, before: dict[str, float]) -> tuple[int, int]:
        """(drafts, accepted tokens) since the first question. Raises Failure where there must be some and are none."""
        wanted = self.wanted.get("speculative")
        if not wanted:
            return 0, 0
        drafts, accepted = self._grown(before)
        if wanted.get("accepted") and drafts and not accepted:
            self.ask("a longer chat completion", gate_speed.PROMPT, LONG, ignore_eos=True)
            drafts, accepted = self._grown(before)
        if drafts <= 0:
            raise Failure(
                "speculative decoding is on but no draft was made ({} did not move)".format(DRAFTS),
                "check that the model has mtp.* tensors and that the speculative method is the family's",
            )
        if wanted.get("accepted") and accepted <= 0:
            raise Failure(
                "of {} drafts not one token was accepted ({} did not move)".format(drafts, ACCEPTED),
                "the draft is not the model's: check its mtp.* tensors, and that they are loaded as they are quantised "
                "(VLLM_QWOPUS_MTP_BF16_DRAFT for BF16 beside 4 bits); or serve without speculative-config",
            )
        return drafts, accepted

    def _grown(self, before: dict[str, float]) -> tuple[int, int]:
        after = self.client.counters()
        drafts, accepted = (int(after.get(name, 0.0) - before.get(name, 0.0)) for name in (DRAFTS, ACCEPTED))
        return drafts, accepted

    def _first_error(self) -> str:
        return gate_log.first_error(self.start.lines())
