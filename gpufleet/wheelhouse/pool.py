"""Several things at once, ended at once: by the first that fails, or by Ctrl-C."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


Stop = threading.Event


class Stopped(Exception):
    """Raised by work that sees that it is to end."""


def each(work: Callable[[T, threading.Event], R], items: Iterable[T], workers: int) -> list[R]:
    """`work(item, stop)` for all items, so many at once; the results in the items' order.

    When one raises, `stop` is set, no further one begins, and its exception is raised once those that run have ended
    or seen `stop`. On KeyboardInterrupt nothing is waited for.
    """
    listed = list(items)
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    ended: queue.SimpleQueue[None] = queue.SimpleQueue()
    results: dict[int, R] = {}
    errors: list[BaseException] = []
    stop = threading.Event()
    for number in range(len(listed)):
        waiting.put(number)

    def worker() -> None:
        try:
            while not stop.is_set():
                number = waiting.get_nowait()
                results[number] = work(listed[number], stop)
        except queue.Empty:
            pass
        except BaseException as error:  # handed over to the caller
            errors.append(error)
            stop.set()
        finally:
            ended.put(None)

    count = min(workers, len(listed))
    for number in range(count):
        # daemons: a thread that waits for a server must not keep the process after Ctrl-C
        threading.Thread(target=worker, name=f"wheelhouse-{number}", daemon=True).start()
    try:
        for _ in range(count):
            ended.get()
    except BaseException:
        stop.set()
        raise
    for error in errors:
        if not isinstance(error, Stopped):
            raise error
    return [results[number] for number in range(len(listed))]
