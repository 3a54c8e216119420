"""Clients of a fleet: one for each box, which asks for a completion again and again and notes what became of it."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType

SECONDS = 0.1  # between two questions


@dataclass(frozen=True)
class Asked:
    """One question. + began, ended: seconds since the epoch; answered: whether it got its answer"""

    began: float
    ended: float
    answered: bool


@dataclass(frozen=True)
class Outage:
    """A box did not answer. + first, last: when it certainly did not, in seconds since the epoch"""

    box: str
    first: float
    last: float


@dataclass
class Clients:
    """Asks the boxes while the block runs. + addresses: `10.0.0.11:8000` by name of the box"""

    addresses: Mapping[str, str]
    model: str
    asked: dict[str, list[Asked]] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Clients:
        self.asked = {box: [] for box in self.addresses}
        self.threads = [threading.Thread(target=self._ask, args=(box,), daemon=True) for box in self.addresses]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(60)

    def _ask(self, box: str) -> None:
        while not self.over.wait(SECONDS):
            began = time.time()
            answered = completes(self.addresses[box], self.model)
            self.asked[box].append(Asked(began, time.time(), answered))

    def outages(self) -> dict[str, list[Outage]]:
        """Those of each box, in order. A box that never answered before has none yet."""
        return {box: list(_outages(box, asked)) for box, asked in self.asked.items()}


def completes(address: str, model: str) -> bool:
    """Whether a chat completion is answered."""
    connection = http.client.HTTPConnection(address, timeout=10)
    body = {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1, "temperature": 0}
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status == 200 and bool(json.load(answer)["choices"][0]["message"]["content"])
    except (OSError, http.client.HTTPException, ValueError):
        return False
    finally:
        connection.close()


def _outages(box: str, asked: Iterable[Asked]) -> Iterable[Outage]:
    failed: list[Asked] = []
    served = False
    for one in [*asked, None]:
        if one and not one.answered:
            failed += [one] if served else []
            continue
        if failed:
            # From the moment that the first was seen to fail until the last was sent: one alone is a moment.
            yield Outage(box, failed[0].ended, max(failed[0].ended, failed[-1].began))
        failed, served = [], True


def most_at_once(outages: Iterable[Outage]) -> int:
    """How many boxes were down at one moment, at most."""
    found = list(outages)
    return max((sum(one.first <= moment.first <= one.last for one in found) for moment in found), default=0)
