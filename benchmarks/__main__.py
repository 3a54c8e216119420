"""`python -m benchmarks`: the same desired state brought to the same boxes by gpufleet and its peers, in one run.

Peers take turns within a round, so that whatever else the machine does falls on all of them; what is told is the median
of the rounds. It needs root, boots a lab of its own, and ends it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.desired import reset_script
from benchmarks.labs import lab
from benchmarks.peers import PEERS, Bench, Target
from benchmarks.plot import svg
from benchmarks.running import Proxies, Run, run, run_watched
from benchmarks.table import text
from lab.errors import LabError
from lab.paths import REPOSITORY

SCENARIOS = ("first", "nothing", "file", "one")
FIRST_PORT = 22000
NO_SCENARIO = {"floor": ("first", "file", "one")}  # which only looks


@dataclass(frozen=True)
class Asked:
    boxes: Sequence[int]
    peers: Sequence[str]
    scenarios: Sequence[str]
    delays: Sequence[int]
    rounds: int
    out: Path
    keep: bool
    add: bool


def arguments(words: Sequence[str] | None = None) -> Asked:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--boxes", type=int, nargs="+", default=[1, 8, 40, 100], metavar="N")
    parser.add_argument("--peers", default=",".join(PEERS), help="default: %(default)s")
    parser.add_argument("--scenarios", default=",".join(SCENARIOS), help="default: %(default)s")
    parser.add_argument("--delay", type=int, nargs="+", default=[0, 20, 100], metavar="MS", help="added round trip")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=REPOSITORY / "benchmarks" / "results")
    parser.add_argument("--keep", action="store_true", help="leave the lab up for the next call")
    parser.add_argument("--add", action="store_true", help="to the results that are there, so that parts make a table")
    given = parser.parse_args(words)
    found = Asked(
        given.boxes,
        given.peers.split(","),
        given.scenarios.split(","),
        given.delay,
        given.rounds,
        given.out,
        given.keep,
        given.add,
    )
    for chosen, known, word in ((found.peers, PEERS, "peer"), (found.scenarios, SCENARIOS, "scenario")):
        if unknown := [each for each in chosen if each not in known]:
            parser.error(f"no {word} is called {', '.join(unknown)}; there are {', '.join(known)}")
    return found


class Session:
    """The measurements of one call: `results` in the order they were made."""

    def __init__(self, bench: Bench, asked: Asked) -> None:
        self.bench, self.asked = bench, asked
        self.results: list[dict[str, Any]] = []
        self.values: dict[str, int] = {}  # the largest value that was asked of a peer's boxes
        self.one: dict[str, int] = {}  # the value of the last box, where it is another than the others'

    def all(self) -> None:
        for count in sorted(self.asked.boxes):
            self._bring(count)
            for delay in self.asked.delays:
                for number in range(self.asked.rounds):
                    for scenario in self.asked.scenarios:
                        # With a delay a first run is one of minutes, which says little that one without does not.
                        if scenario != "first" or delay == 0:
                            self._round(scenario, count, delay, number)
                if "nothing" in self.asked.scenarios:
                    self._counted(count, delay)

    def _bring(self, count: int) -> None:
        """All boxes in order by all peers, unmeasured: what is compiled or downloaded once is done with."""
        for peer in self.asked.peers:
            self._run(peer, count, {})

    def _round(self, scenario: str, count: int, delay: int, number: int) -> None:
        for peer in self.asked.peers:
            if scenario in NO_SCENARIO.get(peer, ()):
                continue
            if scenario == "first":
                self.bench.lab.on_boxes(self._names(count), reset_script(peer))
            if scenario == "file":
                self.values[peer] = self.values.get(peer, 1) + 1
                self.one.pop(peer, None)
            if scenario == "one":
                self.one[peer] = self.values.get(peer, 1) + 10 + self.one.get(peer, 0) % 2
            done = self._delayed(peer, count, delay)
            self._note(peer, scenario, count, delay, number, done)

    def _delayed(self, peer: str, count: int, delay: int) -> Run:
        if not delay:
            return self._run(peer, count, {})
        proxies, ports = self._proxies(count, delay)
        try:
            return self._run(peer, count, ports)
        finally:
            proxies.end()

    def _counted(self, count: int, delay: int) -> None:
        """One more run of each peer with nothing to do, through the proxy, for bytes, round trips and memory."""
        for peer in self.asked.peers:
            proxies, ports = self._proxies(count, delay)
            try:
                command = PEERS[peer](self.bench, self._targets(peer, count, ports))
                done = run_watched(command)
            finally:
                counts = proxies.end().values()
            self.results.append(
                {
                    "peer": peer, "scenario": "counted", "boxes": count, "delay": delay, "rss_mib": done.rss_mib,
                    **{
                        key: round(sum(each[key] for each in counts) / count, 1)
                        for key in ("connections", "to_box", "from_box", "round_trips")
                    },
                }
            )  # fmt: skip

    def _run(self, peer: str, count: int, ports: dict[str, int]) -> Run:
        return run(PEERS[peer](self.bench, self._targets(peer, count, ports)))

    def _note(self, peer: str, scenario: str, count: int, delay: int, number: int, done: Run) -> None:
        found = {"peer": peer, "scenario": scenario, "boxes": count, "delay": delay, "round": number}
        self.results.append({**found, "seconds": done.seconds, "cpu": done.cpu})
        print(
            f"{scenario:8} {count:3} boxes {delay:3} ms  round {number + 1}  {peer:9} {done.seconds:7.2f} s", flush=True
        )

    def _names(self, count: int) -> list[str]:
        return [box.name for box in self.bench.lab.boxes[:count]]

    def _targets(self, peer: str, count: int, ports: dict[str, int]) -> list[Target]:
        boxes = self.bench.lab.boxes[:count]
        value = self.values.get(peer, 1)
        return [
            Target(
                box.name,
                "127.0.0.1" if ports else box.address,
                ports.get(box.name, 22),
                self.one.get(peer, value) if box is boxes[-1] else value,
            )
            for box in boxes
        ]

    def _proxies(self, count: int, delay: int) -> tuple[Proxies, dict[str, int]]:
        boxes = self.bench.lab.boxes[:count]
        ports = {box.name: FIRST_PORT + number for number, box in enumerate(boxes)}
        to = {ports[box.name]: f"{box.address}:22" for box in boxes}
        return Proxies(sys.executable, REPOSITORY, delay, to), ports


def known_hosts(bench: Bench) -> None:
    """The boxes' keys by address and by port of the proxy."""
    keys = bench.lab.host_keys()
    lines = [
        f"{where} {keys[box.name]}"
        for number, box in enumerate(bench.lab.boxes)
        for where in (box.address, f"[127.0.0.1]:{FIRST_PORT + number}")
    ]
    bench.known_hosts.write_text("\n".join(lines) + "\n")


def main() -> None:
    asked = arguments()
    if os.geteuid():
        raise SystemExit("benchmarks: the lab needs root")
    kept = earlier(asked.out) if asked.add else []
    with tempfile.TemporaryDirectory(prefix="gpufleet-bench-") as work:
        try:
            with lab(max(asked.boxes), asked.keep) as found:
                bench = Bench(found, Path(work), Path(work) / "known_hosts")
                known_hosts(bench)
                session = Session(bench, asked)
                try:
                    session.all()
                finally:  # what was measured stays, whatever ends the rest
                    results = kept + session.results
                    write(asked, results)
        except LabError as error:
            raise SystemExit(f"benchmarks: {error}") from None
    print("\n" + text(results))
    print(f"\n{asked.out}/results.json, {asked.out}/nothing-to-do.svg")


def earlier(out: Path) -> list[dict[str, Any]]:
    """The results of calls before this one; none when there are none."""
    try:
        return list(json.loads((out / "results.json").read_text())["results"])
    except FileNotFoundError:
        return []


def write(asked: Asked, results: Sequence[dict[str, Any]]) -> None:
    document = {
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "results": list(results),
    }
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "results.json").write_text(json.dumps(document, indent=1) + "\n")
    (asked.out / "nothing-to-do.svg").write_text(svg(results))


if __name__ == "__main__":
    main()
