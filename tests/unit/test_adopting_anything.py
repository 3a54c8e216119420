"""Whatever flags and variables a service has: it is adopted, and each of them is the same or named."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gpufleet import adopting_box, engines
from gpufleet.adopting_flags import leaves, same
from gpufleet.fleet import Fleet
from gpufleet.spelling import words
from tests.unit import tiny_checkpoint
from tests.unit.adopted_boxes import SYSTEMD, UNIT, HandMade, facts, fleet

TABLE = engines.load("vllm-0.27.1")
OF_THE_PLAN = {"port", "tensor-parallel-size", "model", "device-ids", "host"}
SWITCHES = sorted(name for name, flag in TABLE.flags.items() if flag.negatable and name == flag.name)
CHOICES = sorted(
    name for name, flag in TABLE.flags.items() if flag.kind == "value" and flag.choices and name == flag.name
)
NUMBERS = ["max-model-len", "max-num-seqs", "max-num-batched-tokens", "seed", "block-size"]
VALUES = st.one_of(st.booleans(), st.integers(0, 99), st.text("abc", min_size=1, max_size=3))
ARGS = st.builds(
    lambda *parts: {key: value for part in parts for key, value in part.items()},
    st.dictionaries(st.sampled_from(SWITCHES), st.booleans(), max_size=6),
    st.sets(st.sampled_from(CHOICES), max_size=4).map(
        lambda names: {name: TABLE.flags[name].choices[0] for name in names}
    ),
    st.dictionaries(st.sampled_from(NUMBERS), st.integers(1, 4096), max_size=4),
    st.dictionaries(
        st.sampled_from(["additional-config", "speculative-config", "compilation-config", "reasoning-config"]),
        st.dictionaries(st.sampled_from(["method", "num_speculative_tokens", "a"]), VALUES, min_size=1, max_size=3),
        max_size=2,
    ),
)
ENV = st.dictionaries(
    st.sampled_from(
        ["VLLM_LOGGING_LEVEL", "VLLM_NO_SUCH", "NCCL_DEBUG", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "TM_X"]
    ),
    st.text("01x", min_size=1, max_size=3),
    max_size=4,
)


@cache
def box() -> tuple[dict[str, Any], Fleet]:
    """A service of a tiny model as the kit tells of it, and the fleet of its box."""
    with tempfile.TemporaryDirectory() as folder:
        made = HandMade(Path(folder))
        made.unit("vllm.service", UNIT.format(command="vllm serve", more=""))
        made.process(812, ["vllm", "serve", "/srv/Tiny"], SYSTEMD, "/system.slice/vllm.service", [8000])
        made.runtime("/opt/v", vllm="0.27.1")
        tiny_checkpoint.checkpoint(Path(folder) / "srv/Tiny")
        (service,) = made.look()["services"]
        service["runtime"]["versions"] = {"vllm": "0.27.1"}
        return service, fleet(Path(folder), "box")


@settings(max_examples=60, deadline=None)
@given(ARGS, ENV, st.sampled_from(["cpu-only", "single-2080ti", "dual-3090-nv4"]))
def test_each_is_the_same_or_named(args: dict[str, Any], env: dict[str, str], topology: str) -> None:
    base, whole = box()
    service = {**base, "words": ["/srv/Tiny", *words(args, TABLE)], "env": {**base["env"], **env}}
    looked = adopting_box.adopt_all(whole, "box", facts(topology), [service], lambda model: model.path.read_text())
    (found,) = looked.services
    assert found.why_not is None and found.instance is not None, found.why_not
    named = {item.key for item in found.items if item.kind in ("changed", "left")}
    now = leaves(found.instance.args)
    for flag, value in leaves(args).items():
        gone = flag in OF_THE_PLAN or flag.partition(".")[0] in named
        assert same(now.get(flag), value) or flag in named or gone, (flag, value, now.get(flag))
    for name, text in env.items():
        assert found.instance.env.get(name) == text or f"env.{name}" in named, name
