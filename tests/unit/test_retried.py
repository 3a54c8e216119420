"""The operation that installs runtimes: a file that the box lost on the way is brought once more, and only then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpufleet.errors import BoxError
from gpufleet.wheelhouse.items import Item, Made
from operations import retried

ITEMS = [Item(f"{name}-1-py3-none-any.whl", name * 64, 1, Made()) for name in "ab"]
GONE = BoxError("box", "a-1-py3-none-any.whl was damaged in the box's store, and was removed", "deploy again")


class Box:
    """Answers a job with what is next in `answers`; its store has the files of `have`."""

    def __init__(self, *answers: dict[str, Any] | BoxError, have: str = "b", asked: bool = True) -> None:
        self.answers, self.have, self.asked = list(answers), have, asked
        self.plan, self.said = None, list[str]()
        self.host = SimpleNamespace(name="box", log=self.said.append)

    def call(self, verb: str, spec: Any, **_: Any) -> dict[str, Any]:
        if verb == "stock":
            if not self.asked:
                raise BoxError("box", "the connection broke off", "check it")
            return {"have": [item.sha256 for item in ITEMS if item.sha256[0] in self.have], "parts": {}}
        answer = self.answers.pop(0)
        if isinstance(answer, BoxError):
            raise answer
        return answer


def install(box: Any, brought: list[Any]) -> dict[str, Any]:
    return retried.with_files(box, {"verb": "runtime"}, ITEMS, lambda: brought.append(ITEMS))


def test_what_the_box_lost_is_brought_and_installed() -> None:
    box, brought = Box(GONE, {"path": "there"}), list[Any]()
    assert install(box, brought) == {"path": "there"} and brought == [ITEMS]
    assert box.said == [f"{GONE.cause}: it is brought once more"]


def test_a_second_failure_is_told() -> None:
    brought: list[Any] = []
    with pytest.raises(BoxError, match="the second"):
        install(Box(GONE, BoxError("box", "the second", "see to it")), brought)
    assert len(brought) == 1


@pytest.mark.parametrize("box", [Box(GONE, have="ab"), Box(GONE, asked=False), Box(BoxError("box", "x", "y", True))])
def test_another_failure_is_told_as_it_is(box: Any) -> None:
    brought: list[Any] = []
    with pytest.raises(BoxError):
        install(box, brought)
    assert brought == [] and box.answers == []
