"""Chat templates that never end, grow, or look around: each is one problem, and the next template renders."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from gpufleet import template_child
from gpufleet.checks import Facts, apart, template
from gpufleet.checks.jinja import TemplateError
from tests.command import REPOSITORY

ENDLESS = '{% set x = "a"*65536 %}{% for a in x %}{% for b in x %}{% for c in x %}{% endfor %}{% endfor %}{% endfor %}'


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A renderer of this test, of which the time is up soon."""
    monkeypatch.setattr(apart, "_child", apart._Child())
    monkeypatch.setattr(apart, "COMMAND", [sys.executable, "-c", SHORT])


SHORT = "from gpufleet import template_child as child; child.SECONDS = 2.0; child.main()"


def test_a_template_without_end_is_one_problem_and_the_next_one_renders() -> None:
    facts = Facts(config={"model_type": "x"}, texts={"config.json": "{}", "chat_template.jinja": ENDLESS})
    found = list(template.renders(facts, []))
    assert found and all("takes too long: it may never end" in problem.cause for problem in found)
    assert apart.render("{{ word }}", {"word": "é\ud800\n"}) == "é\ud800\n"
    assert apart.variables("{{ word }}{% set own = 1 %}{{ own }}") == {"word"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            '{% set n = namespace(x="a" * 60000) %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}',
            "memory",
        ),
        ('{{ "%5000000000d" % 1 }}', "memory"),
        ('{{ "{:3000000000}".format(1) }}', "memory"),
        ('{{ "x" | center(9000000) }}', "makes 9000000 characters"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion"),
        ('{{ "".__class__.__mro__ }}', "is unsafe"),
        ("{{ cycler.__init__.__globals__ }}", "is unsafe"),
        ('{% include "/etc/passwd" %}', "no loader"),
    ],
)
def test_a_template_that_grows_or_looks_around(text: str, why: str) -> None:
    with pytest.raises(TemplateError, match=why):
        apart.render(text, {})


def test_the_renderer_ends_with_who_asks_and_ends_itself_in_time() -> None:
    asked = json.dumps({"text": "{{ 1 }}", "values": {}}) + "\n"
    one = subprocess.run([sys.executable, "-c", SHORT], input=asked, text=True, capture_output=True, cwd=REPOSITORY)
    assert (one.returncode, json.loads(one.stdout)) == (0, {"text": "1"})
    asked = json.dumps({"text": ENDLESS, "values": {}}) + "\n"
    two = subprocess.run([sys.executable, "-c", SHORT], input=asked, text=True, capture_output=True, cwd=REPOSITORY)
    assert (two.returncode, two.stdout) == (-signal.SIGVTALRM, "")
    assert template_child.SECONDS > 1
