"""The gate against a small engine: one test for each way in which an instance that answers does not serve."""

from __future__ import annotations

import time
from typing import Any

import pytest

from hostkit import gate, gate_checks, gate_log, gate_xid
from hostkit.errors import Failure
from tests.unit.engine import KV, Engine, engine, service, wanted

__all__ = ["engine", "service"]  # fixtures
Service = dict[str, Any]


def run(engine: Engine, old: int | None = None, **more: Any) -> dict[str, Any]:
    history = more.pop("history", [])
    return gate.run("x.service", engine.port, wanted(**more), time.time(), old, history=history)


def refused(engine: Engine, match: str, remedy: str, **more: Any) -> Failure:
    with pytest.raises(Failure, match=match) as caught:
        run(engine, **more)
    assert remedy in caught.value.remedy
    return caught.value


def test_what_is_asked_for_is_shown(engine: Engine, service: Service) -> None:
    before = time.monotonic()
    answer = run(
        engine,
        expect={"contains": "42", "deterministic": True},
        speculative={"accepted": True},
        context={"tokens": 16384},
        tools=True,
        images=True,
        log={"promised": [{"line": r"KV cache size: [\d,]+ tokens", "means": "?"}], "forbidden": []},
        speed={"floor": 0.5, "published": None, "tokens": 8},
    )
    assert answer["completion"] == "the answer is 42" and answer["warnings"] == []
    assert answer["drafts"] == answer["accepted"] == len(engine.asked)
    assert 0.9 * (4096 - gate_checks.ROOM) <= answer["context_tokens"] <= 4096
    assert answer["tokens_per_second"] > 0 and answer["ready_seconds"] >= 0
    assert before <= answer["first_completion_at"] <= time.monotonic()


def test_what_is_not_asked_for_is_not_asked(engine: Engine, service: Service) -> None:
    answer = run(engine)
    assert len(engine.asked) == 1
    assert (answer["drafts"], answer["context_tokens"], answer["tokens_per_second"]) == (0, None, None)


def test_a_wrong_answer(engine: Engine, service: Service) -> None:
    refused(engine, r"'\?' is 'the answer is 42' and lacks '43'", "quantisation flag", expect={"contains": "43"})


def test_an_answer_that_is_cut_off_before_it_comes(engine: Engine, service: Service) -> None:
    """As of a model that thinks first, with too few tokens for that."""
    engine.finish = "length"
    refused(engine, r"cut off after 4 tokens\) and lacks '43'", "gate.max_tokens", expect={"contains": "43"})


def test_a_context_smaller_than_the_answer_may_be_long(engine: Engine, service: Service) -> None:
    """vLLM refuses a question whose answer may be longer than its context has room for."""
    engine.limit = 700
    run(engine, max_tokens=2048, expect={"contains": "42"}, tools=True, images=True)
    assert {body["max_tokens"] for body in engine.asked} == {350}


def test_two_answers_that_differ(engine: Engine, service: Service) -> None:
    engine.answers = ["one", "two"]
    refused(engine, "differ: 'one', then 'two'", "kernel or P2P", expect={"deterministic": True})


def test_an_empty_answer(engine: Engine, service: Service) -> None:
    engine.answers = [" "]
    refused(engine, "empty", "chat template")


def test_an_answer_of_one_character(engine: Engine, service: Service) -> None:
    engine.answers = ["!" * 16]
    refused(engine, "its numbers overflow", "dtype")


@pytest.mark.parametrize("answer", ["the\u0120answer\u0120is\u012042", "the answer is\u010a42", "\u012042"])
def test_an_answer_of_the_wrong_tokenizer(engine: Engine, service: Service, answer: str) -> None:
    engine.answers = [answer]
    refused(engine, "not put back into text", "tokenizer_class", expect={"contains": "42"})


def test_health_alone_proves_nothing(engine: Engine, service: Service) -> None:
    engine.status, engine.refusal = 500, "Internal\nServer Error"
    service["log"] = ["torch._inductor.exc.InductorError: InvalidCxxCompiler: No working C++ compiler found"]
    refused(engine, "a chat completion fails with 500: Internal Server Error; its log: torch.*InductorError", "g++")


def test_an_instance_that_wants_a_key(engine: Engine, service: Service) -> None:
    engine.status = 401
    refused(engine, "fails with 401", "API key")


def test_a_served_name_that_is_another(engine: Engine, service: Service) -> None:
    engine.status, engine.refusal = 404, "The model `m` does not exist."
    refused(engine, "does not exist", "served-model-name")


def test_no_draft_is_made(engine: Engine, service: Service) -> None:
    engine.speculates = False
    refused(engine, "no draft was made", "mtp", speculative={"accepted": False})


def test_no_drafted_token_is_accepted(engine: Engine, service: Service) -> None:
    engine.accepts = 0
    assert run(engine, speculative={"accepted": False})["accepted"] == 0
    refused(engine, "not one token was accepted", "VLLM_QWOPUS_MTP_BF16_DRAFT", speculative={"accepted": True})


def test_a_short_answer_is_no_proof_against_the_draft(engine: Engine, service: Service) -> None:
    """Where the first answers are too short for anything to be accepted, a longer one is asked."""
    engine.accepts = 0
    first = engine.post

    def post(handler: Any, body: dict[str, Any]) -> None:
        engine.accepts = 3 if body["max_tokens"] == gate.LONG else 0
        first(handler, body)

    engine.post = post  # type: ignore[method-assign]
    assert run(engine, speculative={"accepted": True})["accepted"] == 3


def test_without_counters_speculation_is_not_proven(engine: Engine, service: Service) -> None:
    engine.metrics = False
    refused(engine, "no draft was made", "mtp", speculative={"accepted": True})


def test_the_long_prompt_keeps_to_the_setting_and_to_the_engine(engine: Engine, service: Service) -> None:
    engine.limit = None
    assert 1900 * 0.9 < run(engine, context={"tokens": 2000})["context_tokens"] <= 2000
    engine.limit, engine.per_word = 1024, 7.5
    assert 960 * 0.9 < run(engine, context={"tokens": 16384})["context_tokens"] <= 1024
    engine.limit = 200
    assert run(engine, context={"tokens": 16384})["context_tokens"] is None


def test_no_two_long_prompts_are_the_same(engine: Engine, service: Service) -> None:
    """So that no cache of prefixes answers in place of the prefill."""
    for _ in range(2):
        run(engine, context={"tokens": 2000})
    texts = [body["messages"][0]["content"] for body in engine.asked if len(body["messages"][0]["content"]) > 1000]
    assert len(texts) == len({text[:60] for text in texts}) > 1


def test_a_long_prompt_that_is_refused(engine: Engine, service: Service) -> None:
    engine.limit, engine.says = 900, 4096
    refused(engine, "4032 tokens fails with 400: .* maximum context length", "journalctl", context={"tokens": 16384})


def test_a_long_prompt_that_is_cut(engine: Engine, service: Service) -> None:
    engine.cuts = 1500
    refused(engine, "of some 4032 tokens it read 1500", "limits a prompt", context={"tokens": 16384})


def test_a_long_prompt_without_an_answer(engine: Engine, service: Service) -> None:
    engine.long = " "
    refused(engine, r"the answer to a prompt of 3\d+ tokens is empty", "max-model-len", context={"tokens": 16384})


def test_a_long_prompt_whose_answer_is_noise(engine: Engine, service: Service) -> None:
    engine.long = "!" * 16
    refused(engine, r"prompt of 3\d+ tokens is '!!!!", "dtype", context={"tokens": 16384})


def test_an_engine_that_does_not_count_is_not_asked_a_long_prompt(engine: Engine, service: Service) -> None:
    engine.counts = False
    answer = run(engine, context={"tokens": 16384}, speed={"floor": 0.5, "published": None, "tokens": 8})
    assert [line.partition(":")[0] for line in answer["warnings"]] == [
        "no prompt near the context limit was tried",
        "its speed is not known",
    ]


def test_a_tool_call_that_stays_in_the_text(engine: Engine, service: Service) -> None:
    engine.call = "text"
    refused(engine, "a tool call stays in the text: '<tool_call>", "tool-call-parser", tools=True)


def test_a_tool_call_that_does_not_parse(engine: Engine, service: Service) -> None:
    engine.call = "broken"
    refused(engine, "does not parse: get_weather", "tool-call-parser", tools=True)


def test_a_model_that_does_not_call_is_a_warning(engine: Engine, service: Service) -> None:
    engine.call = "words"
    assert "answers with words" in run(engine, tools=True)["warnings"][0]


def test_an_image_that_is_not_seen(engine: Engine, service: Service) -> None:
    engine.colour = "blue"
    refused(engine, "a red image is described as 'It is blue.'", "language-model-only", images=True)


def test_a_line_that_is_owed(engine: Engine, service: Service) -> None:
    service["log"] = ["INFO nothing of it"]
    log = {"promised": [{"line": "GDN prefill", "means": "the prefill does not run by FlashQLA"}], "forbidden": []}
    refused(engine, "no line of the log says 'GDN prefill': the prefill does not", "journalctl -u x.service", log=log)


def test_a_line_that_comes_late_is_waited_for(
    engine: Engine, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = iter([[], [], [KV]])
    monkeypatch.setattr(gate_log, "since", lambda *_: iter(next(lines)))
    assert run(engine, log={"promised": [{"line": "KV cache size", "means": "?"}]})["warnings"] == []


def test_a_line_that_must_not_be_there(engine: Engine, service: Service) -> None:
    service["log"] = [KV, "WARNING Unknown vLLM environment variable detected: VLLM_NO_SUCH"]
    log = {"promised": [], "forbidden": [{"line": "Unknown vLLM environment", "means": "it does nothing"}]}
    refused(engine, "the log says '.*VLLM_NO_SUCH': it does nothing", "journalctl", log=log)


def test_of_an_older_start_a_missing_line_is_a_warning(engine: Engine, service: Service) -> None:
    """The journal may have dropped it: nothing was restarted here."""
    service.update(since=time.monotonic() - 3600, log=[])
    (said,) = run(engine, log={"promised": [{"line": "KV cache size", "means": "?"}]})["warnings"]
    assert "may have dropped it" in said


def test_of_an_older_start_whose_log_is_whole_it_is_owed(engine: Engine, service: Service) -> None:
    """As after a power cut: the boot has started it, not this activation."""
    service.update(since=time.monotonic() - 3600, log=["Starting x.service - gpufleet x...", "INFO nothing of it"])
    log = {"promised": [{"line": "KV cache size", "means": "it did not say"}]}
    refused(engine, "no line of the log says 'KV cache size': it did not say", "journalctl", log=log)


def test_a_new_xid_of_its_cards(engine: Engine, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    key = ("0000:01:00", 31)
    counts = iter([{key: (1, "old")}, {key: (2, "NVRM: Xid (PCI:0000:01:00): 31, MMU Fault")}])
    monkeypatch.setattr(gate_xid, "read", lambda bus_ids: next(counts))
    refused(engine, "Xid 31 of card 0000:01:00 since the start .*MMU Fault", "journal", bus_ids=["00000000:01:00.0"])


def test_a_service_that_dies_while_it_is_asked(engine: Engine, service: Service) -> None:
    first = engine.post

    def post(handler: Any, body: dict[str, Any]) -> None:
        service.update(active="activating", sub="auto-restart", pid=None)
        service["log"] = ["torch.OutOfMemoryError: CUDA out of memory.", "RuntimeError: cancelled"]
        engine.status = 500
        first(handler, body)

    engine.post = post  # type: ignore[method-assign]
    refused(engine, "x.service did not stay up: torch.OutOfMemoryError", "gpu-memory-utilization")


def test_a_service_that_was_restarted_meanwhile(engine: Engine, service: Service) -> None:
    """Each answer is right, but they are of two processes."""
    first = engine.post

    def post(handler: Any, body: dict[str, Any]) -> None:
        service.update(pid=8, log=["KeyError: 'x'"])
        first(handler, body)

    engine.post = post  # type: ignore[method-assign]
    refused(engine, "did not stay up: KeyError: 'x'", "journalctl")


def test_a_slow_one_is_held_against_its_history(engine: Engine, service: Service) -> None:
    speed = {"floor": 0.5, "published": None, "tokens": 8}
    refused(engine, "the median of its last 2 activations is 1e\\+09|1000000000.0", "speed_floor", speed=speed,
            history=[{"tokens_per_second": 1e9}, {"tokens_per_second": 1e9}])  # fmt: skip
