"""The proof that an instance serves: its service stays up, a real chat completion answers, speculation moves.

/health alone proves nothing: vLLM says 200 while completions fail with 500.
"""

from __future__ import annotations

import http.client
import json
import re
import time
import urllib.error
import urllib.request
from typing import Optional, Sequence

from hostkit import events, systemd
from hostkit.errors import Failure

SETTLED_SECONDS = 2  # a new start shows by then; a failed one waits RestartSec=10 before the next
DRAFTS = "vllm:spec_decode_num_drafts_total"
# What an engine says in its log, and what that means for the owner.
HINTS = [
    (r"InvalidCxxCompiler|No working C\+\+ compiler|g\+\+.*(not found|No such file)",
     "install g++ on the box (the stack's apt list names it)"),
    (r"libnuma\.so\.1", "install libnuma1 on the box (the stack's apt list names it)"),
    (r"Address already in use", "stop what listens on that port, or give the instance another port"),
    (r"out of memory|OutOfMemoryError|No available memory for the cache blocks",
     "lower gpu-memory-utilization, max-model-len or max-num-seqs"),
    (r"unrecognized arguments: (.*)", "take that flag out of serve_args: this engine does not know it"),
]  # fmt: skip
# What a process says of another one's failure, which has its own line before it.
EMPTY_WORDS = r"See root cause above|Failed core proc|Engine core initialization failed"
UNANSWERED = (OSError, http.client.HTTPException, ValueError)  # no answer, no HTTP, no JSON
# No proxy: the instance is on this very box.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def run(unit: str, port: int, wanted: dict, began: float, old: Optional[int], history: Sequence = ()) -> dict:
    """Wait until the instance answers, then prove it.

    + wanted: {"host": where it listens, "model": served name, "prompt", "max_tokens",
      "expect": {"deterministic": true} | {"contains": text},
      "speculative": bool, "timeout": seconds to the first completion}
    + began: when it was started, in seconds since the epoch; what the log says before is not of this start
    + old: the process that is being replaced; while it lives, nothing that answers is the new one
    Returns {"completion", "drafts"}. Raises Failure naming what the log gives as the reason.
    """
    return Gate(unit, port, wanted, began, old).run()


def wait(unit: str, port: int, wanted: dict, began: float, old: Optional[int]) -> None:
    """Wait until the instance answers, and prove nothing more: of a release whose own question is not known here."""
    Gate(unit, port, wanted, began, old).wait_healthy()


class Gate:
    """One look at one instance, from its start on."""

    def __init__(self, unit: str, port: int, wanted: dict, began: float, old: Optional[int]) -> None:
        self.unit, self.port, self.wanted, self.began, self.old = unit, port, wanted, began, old
        self.url = "http://{}:{}".format(wanted["host"], port)

    def run(self) -> dict:
        self.wait_healthy()
        speculative = self.wanted["speculative"]
        drafts = self.drafts() if speculative else 0.0
        text = self.completion()
        expect = self.wanted["expect"]
        if expect.get("deterministic") and self.completion() != text:
            raise Failure(
                "two completions at temperature 0 differ", "look for a broken kernel or P2P in the unit's journal"
            )
        if "contains" in expect and str(expect["contains"]) not in text:
            raise Failure(
                "the answer to {!r} is {!r} and lacks {!r}".format(
                    self.wanted["prompt"], text[:200], expect["contains"]
                ),
                "check the checkpoint, its quantisation flag and the chat template",
            )
        grown = self.drafts() - drafts if speculative else 0.0
        if speculative and grown <= 0:
            raise Failure(
                "speculative decoding is on but no draft was made ({} did not move)".format(DRAFTS),
                "check that the model has mtp.* tensors and that the speculative method is the family's",
            )
        return {"completion": text[:200], "drafts": int(grown)}

    def wait_healthy(self) -> None:
        told = started = time.monotonic()
        while True:
            service = systemd.show(self.unit)
            now = time.monotonic()
            # At first the state may still be that of the process before; and while a restart is still to be done, a
            # unit is "inactive" or "failed" between the stop and the start, for longer on a busy machine.
            down = service["active"] in ("failed", "inactive") and not service["job"]
            if now - started > SETTLED_SECONDS and (down or service["sub"] == "auto-restart"):
                raise self.died()
            if service["active"] == "active" and service["pid"] not in (None, self.old) and self.healthy():
                return
            if now - started > self.wanted["timeout"]:
                raise Failure(
                    "{} did not answer on port {} within {} s".format(self.unit, self.port, self.wanted["timeout"]),
                    "follow `journalctl -u {}` on the box".format(self.unit),
                )
            if now - told > 15:
                events.log("{} is starting ({:.0f} s)".format(self.unit, now - started))
                told = now
            time.sleep(0.5)

    def healthy(self) -> bool:
        try:
            with OPENER.open(self.url + "/health", timeout=5):
                return True
        except UNANSWERED:
            return False

    def died(self) -> Failure:
        lines = systemd.log_since(self.unit, self.began)
        telling = [line for line in lines if not re.search(EMPTY_WORDS, line)]
        said = [line for line in telling if re.search(r"\w*(Error|error|Exception)\b.*:|\berror:", line)] or lines[-1:]
        reason = said[-1].strip()[-300:] if said else "it wrote nothing to the journal"
        return Failure("{} did not stay up: {}".format(self.unit, reason), self.remedy(lines))

    def remedy(self, lines: list) -> str:
        """What the log of a failing engine is known to mean, else where to read it."""
        text = "\n".join(lines)
        hints = (hint for pattern, hint in HINTS if re.search(pattern, text))
        return next(hints, "read `journalctl -u {}` on the box".format(self.unit))

    def completion(self) -> str:
        """The text of one chat completion at temperature 0."""
        body = {
            "model": self.wanted["model"],
            "messages": [{"role": "user", "content": self.wanted["prompt"]}],
            "max_tokens": self.wanted["max_tokens"],
            "temperature": 0,
            "seed": 0,
        }
        request = urllib.request.Request(
            self.url + "/v1/chat/completions",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with OPENER.open(request, timeout=self.wanted["timeout"]) as answer:
                message = json.load(answer)["choices"][0]["message"]
        except urllib.error.HTTPError as error:
            detail = error.read(300).decode("utf-8", "replace")
            raise Failure(
                "a chat completion fails with {}: {}".format(error.code, detail),
                self.remedy(systemd.log_since(self.unit, self.began)),
            )
        except (*UNANSWERED, KeyError, IndexError, TypeError) as error:
            if systemd.show(self.unit)["active"] != "active":
                raise self.died()
            raise Failure(
                "a chat completion does not answer: {!r}".format(error),
                self.remedy(systemd.log_since(self.unit, self.began)),
            )
        text = message.get("content") or message.get("reasoning_content") or message.get("reasoning") or ""
        if not text.strip():
            raise Failure("a chat completion comes back empty", "check the checkpoint and its chat template")
        return str(text)

    def drafts(self) -> float:
        """The drafts made so far, summed over engines; 0 when the counter is not there yet."""
        try:
            with OPENER.open(self.url + "/metrics", timeout=10) as answer:
                lines = answer.read().decode("utf-8", "replace").splitlines()
        except UNANSWERED:
            return 0.0
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((DRAFTS + "{", DRAFTS + " ")))
