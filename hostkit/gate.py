"""The proof that an instance serves: its service stays up, a real chat completion answers, speculation moves.

/health alone proves nothing: vLLM says 200 while completions fail with 500.
"""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request

from hostkit import events, systemd
from hostkit.errors import Failure

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
# No proxy: the instance is on this very box.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def run(unit: str, port: int, wanted: dict) -> dict:
    """Wait until the instance answers, then prove it.

    + wanted: {"model": served name, "prompt", "max_tokens", "expect": {"deterministic": true} | {"contains": text},
      "speculative": bool, "timeout": seconds to the first completion}
    Returns {"completion", "drafts"}. Raises Failure naming what the log gives as the reason.
    """
    wait_healthy(unit, port, wanted["timeout"])
    drafts = counter(port) if wanted["speculative"] else 0.0
    text = completion(unit, port, wanted)
    expect = wanted["expect"]
    if expect.get("deterministic") and completion(unit, port, wanted) != text:
        raise Failure(
            "two completions at temperature 0 differ", "look for a broken kernel or P2P in the unit's journal"
        )
    if "contains" in expect and str(expect["contains"]) not in text:
        raise Failure(
            "the answer to {!r} is {!r} and lacks {!r}".format(wanted["prompt"], text[:200], expect["contains"]),
            "check the checkpoint, its quantisation flag and the chat template",
        )
    grown = counter(port) - drafts if wanted["speculative"] else 0.0
    if wanted["speculative"] and grown <= 0:
        raise Failure(
            "speculative decoding is on but no draft was made ({} did not move)".format(DRAFTS),
            "check that the model has mtp.* tensors and that the speculative method is the family's",
        )
    return {"completion": text[:200], "drafts": int(grown)}


def wait_healthy(unit: str, port: int, timeout: float) -> None:
    began = time.monotonic()
    told = began
    restarts = systemd.show(unit)["restarts"]
    while True:
        service = systemd.show(unit)
        if service["active"] == "failed" or service["restarts"] > restarts or service["active"] == "inactive":
            raise died(unit, service)
        try:
            with OPENER.open("http://127.0.0.1:{}/health".format(port), timeout=5):
                return
        except OSError:
            pass
        now = time.monotonic()
        if now - began > timeout:
            raise Failure(
                "{} did not answer on port {} within {:.0f} s".format(unit, port, timeout),
                "follow `journalctl -u {}` on the box".format(unit),
            )
        if now - told > 15:
            events.log("{} is starting ({:.0f} s)".format(unit, now - began))
            told = now
        time.sleep(0.5)


def died(unit: str, service: dict) -> Failure:
    lines = systemd.log_tail(unit)
    text = "\n".join(lines)
    remedy = "read `journalctl -u {}` on the box".format(unit)
    for pattern, hint in HINTS:
        if re.search(pattern, text):
            remedy = hint
            break
    errors = [line for line in lines if re.search(r"\b\w*(Error|error|Exception)\b.*:", line)] or lines[-1:]
    reason = errors[-1].strip()[-300:] if errors else "it wrote nothing to the journal"
    return Failure("{} did not stay up ({}): {}".format(unit, service["result"], reason), remedy)


def completion(unit: str, port: int, wanted: dict) -> str:
    """The text of one chat completion at temperature 0."""
    body = {
        "model": wanted["model"],
        "messages": [{"role": "user", "content": wanted["prompt"]}],
        "max_tokens": wanted["max_tokens"],
        "temperature": 0,
        "seed": 0,
    }
    request = urllib.request.Request(
        "http://127.0.0.1:{}/v1/chat/completions".format(port),
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with OPENER.open(request, timeout=wanted["timeout"]) as answer:
            message = json.load(answer)["choices"][0]["message"]
    except urllib.error.HTTPError as error:
        detail = error.read(300).decode("utf-8", "replace")
        raise Failure(
            "a chat completion fails with {}: {}".format(error.code, detail),
            next((hint for pattern, hint in HINTS if re.search(pattern, "\n".join(systemd.log_tail(unit)))),
                 "read `journalctl -u {}` on the box".format(unit)),
        )  # fmt: skip
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise (
            died(unit, systemd.show(unit))
            if systemd.show(unit)["active"] != "active"
            else Failure(
                "a chat completion does not answer: {!r}".format(error),
                "read `journalctl -u {}` on the box".format(unit),
            )
        )
    text = message.get("content") or message.get("reasoning_content") or message.get("reasoning") or ""
    if not text.strip():
        raise Failure("a chat completion comes back empty", "check the checkpoint and its chat template")
    return str(text)


def counter(port: int) -> float:
    """The sum over engines of the drafts counter; 0 when it is not there yet."""
    try:
        with OPENER.open("http://127.0.0.1:{}/metrics".format(port), timeout=10) as answer:
            lines = answer.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return 0.0
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((DRAFTS + "{", DRAFTS + " ")))
