"""The benchmarks' own parts: the proxy counts what goes through it, tables and plots say what was measured."""

from __future__ import annotations

import asyncio
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from benchmarks import plot, startup, table
from benchmarks.__main__ import arguments, earlier, write
from benchmarks.delay import Count, Proxy
from benchmarks.desired import PACKAGES, Desired, reset_script


async def _box(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Greets, then answers each line with itself twice."""
    writer.write(b"hello\n")
    while line := await reader.readline():
        writer.write(line * 2)
    writer.close()


async def _talk(milliseconds: float, lines: list[bytes]) -> tuple[list[bytes], Count]:
    box = await asyncio.start_server(_box, "127.0.0.1", 0)
    proxy = Proxy(milliseconds)
    server = await proxy.listen(0, "127.0.0.1", box.sockets[0].getsockname()[1])
    reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
    found = [await reader.readline()]
    for line in lines:
        writer.write(line)
        found += [await reader.readline(), await reader.readline()]
    writer.write_eof()
    assert await reader.read() == b""
    for each in (server, box):
        each.close()
    return found, proxy.counts[0]


@pytest.mark.parametrize("milliseconds", [0, 4])
def test_the_proxy_passes_on_all_in_order_and_counts_it(milliseconds: float) -> None:
    lines = [b"one\n", b"x" * 40_000 + b"\n", b"three\n"]
    found, count = asyncio.run(_talk(milliseconds, lines))
    assert found == [b"hello\n", *(line for line in lines for _ in range(2))]
    sent = sum(map(len, lines))
    assert (count.connections, count.to_box, count.from_box) == (1, sent, len(b"hello\n") + 2 * sent)
    assert count.round_trips == 1 + len(lines)


def test_a_block_is_held_back_for_half_the_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0)

    monkeypatch.setattr("benchmarks.delay.asyncio.sleep", noted)
    asyncio.run(_talk(400, [b"one\n"]))
    assert slept[0] == 0.4 and slept[1:] and all(0 < seconds <= 0.2 for seconds in slept[1:])


def results() -> list[dict[str, Any]]:
    seconds = {"floor": 0.5, "gpufleet": 1.0, "pyinfra": 5.0}
    runs = [
        {"peer": peer, "scenario": "nothing", "boxes": boxes, "delay": 0, "round": number,
         "seconds": value * boxes + (number - 1) / 10, "cpu": value}
        for peer, value in seconds.items() for boxes in (1, 8) for number in range(3)
    ]  # fmt: skip
    counted = {"peer": "gpufleet", "scenario": "counted", "boxes": 8, "delay": 0, "rss_mib": 80.4, "connections": 1,
               "to_box": 2048, "from_box": 4096, "round_trips": 7.5}  # fmt: skip
    return [*runs, counted]


def test_the_table_has_medians_and_ratios() -> None:
    lines = table.text(results()).splitlines()
    assert "| nothing to do | 8 | 0 ms | 4.00 s (0.5 ×) | 8.00 s | 40.00 s (5 ×) |" in lines
    assert "| gpufleet | 8 | 0 ms | 1.00 s | 80 MiB | 2.0 KiB | 4.0 KiB | 7.5 |" in lines


@pytest.mark.parametrize("given", [results(), []])
def test_the_plot_has_a_line_for_each_peer(given: list[dict[str, Any]]) -> None:
    page = ET.fromstring(plot.svg(given))
    lines = page.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == len({item["peer"] for item in given})
    assert all(len((line.get("points") or "").split()) == 2 for line in lines)


def test_a_part_can_be_asked_for_and_what_is_not_there_is_refused() -> None:
    asked = arguments(["--boxes", "8", "--peers", "gpufleet,floor", "--rounds", "3", "--delay", "0"])
    assert (list(asked.boxes), list(asked.peers), asked.rounds) == ([8], ["gpufleet", "floor"], 3)
    with pytest.raises(SystemExit) as ended:
        arguments(["--peers", "gpufleet,puppet"])
    assert ended.value.code == 2


def test_peers_do_not_meet_on_a_box_and_each_is_reset_alone() -> None:
    one, other = Desired("pyinfra"), Desired("mitogen")
    assert not {one.root, one.user, one.unit} & {other.root, other.user, other.unit}
    for peer, its, others in (("pyinfra", one, other), ("mitogen", other, one)):
        script = reset_script(peer)
        assert all(name in script for name in (its.root, its.user, its.unit, *PACKAGES))
        assert not any(name in script for name in (others.root, others.user, others.unit, "gpufleet"))
    assert "/opt/gpufleet" in reset_script("gpufleet")


def test_parts_make_a_table(tmp_path: Path) -> None:
    one = {"peer": "gpufleet", "scenario": "nothing", "boxes": 1, "delay": 0, "round": 0, "seconds": 0.5, "cpu": 0.4}
    two = {**one, "boxes": 8, "seconds": 1.0}
    asked = arguments(["--add", "--out", str(tmp_path / "results")])
    assert earlier(asked.out) == []
    write(asked, [one])
    write(asked, [*earlier(asked.out), two])
    assert earlier(asked.out) == [one, two]
    assert "gpufleet 1 s" in (asked.out / "nothing-to-do.svg").read_text()


def test_everything_whose_start_is_measured_starts(tmp_path: Path) -> None:
    for start in startup.starts(tmp_path, None):
        assert startup.seconds(start) > 0
