"""A picture of a box as SVG: its GPUs, what joins them, and which instance has which. One file, no scripts or fonts."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Protocol

from gpufleet.placing import Point, around, distance, ordered
from gpufleet.topology import bridges, islands, link_between, nvlinks, weakest
from gpufleet.traits import arch

WIDE, HIGH = 176, 68
MARGIN, LINE = 32, 24
# Paul Tol's "light" scheme, made for coloured cells with black text and told apart by colour-blind readers
# (personal.sron.nl/~pault); from the ninth instance on with a dashed border.
COLOURS = ("#77AADD", "#EE8866", "#EEDD88", "#FFAABB", "#99DDFF", "#44BB99", "#BBCC33", "#AAAA00")
INK, STEEL, GREY, PAPER = "#1a1a1a", "#46525e", "#767676", "#ffffff"
# PCIe links are drawn for boxes of so many GPUs, and inside instances up to so many in all.
SMALL_BOX, MOST_PCIE = 4, 16
# A mesh of equal links among so many GPUs is drawn as one node in the middle.
HUB = 5


class Shown(Protocol):
    """What the picture says of an instance."""

    @property
    def name(self) -> str: ...
    @property
    def gpus(self) -> Sequence[int]: ...
    @property
    def link(self) -> str | None: ...
    @property
    def port(self) -> int: ...


def svg(name: str, gpus: Sequence[Mapping[str, Any]], links: Mapping[str, str], instances: Sequence[Shown]) -> str:
    """The picture of one box.

    + gpus, links: as the facts have them
    + instances: in the order of the legend; colours follow it
    NVLinks are thick lines with their number; PCIe links are thin, and drawn only where they are few.
    """
    drawing = _Drawing(name, sorted(gpus, key=lambda gpu: gpu["index"]), links, instances)
    return drawing.draw()


@dataclass
class _Drawing:
    name: str
    gpus: Sequence[Mapping[str, Any]]
    links: Mapping[str, str]
    instances: Sequence[Shown]
    taken: list[tuple[float, float, float, float]] = field(default_factory=list)  # left, top, right, bottom

    def draw(self) -> str:
        indexes = [gpu["index"] for gpu in self.gpus]
        hubs = [group for group in islands(self.gpus, self.links) if len(group) >= HUB and self._even(group)]
        inside = {pair for hub in hubs for pair in combinations(hub, 2)}
        lines = [pair for pair in combinations(indexes, 2) if pair not in inside and pair in self._drawn(indexes)]
        centres = around(self._order(indexes, lines, inside), WIDE, HIGH) if indexes else {}
        centres = _shifted(centres)
        self.taken = [(x - WIDE / 2, y - HIGH / 2, x + WIDE / 2, y + HIGH / 2) for x, y in centres.values()]
        bottom = max((box[3] for box in self.taken), default=MARGIN + 2 * LINE)
        body = [self._line(pair, centres) for pair in lines]
        hub_parts = [self._hub(hub, centres) for hub in hubs]
        body += [spokes for spokes, _ in hub_parts] + [node for _, node in hub_parts]
        body += [self._card(gpu, centres[gpu["index"]]) for gpu in self.gpus]
        # last, so that no line runs through a label
        body += [self._label(pair, lines, centres) for pair in sorted(lines, key=self._count)]
        if not indexes:
            body.append(_text(MARGIN, bottom, "This box has no GPU.", 14))
        legend, width, height = self._legend(bottom + MARGIN + LINE, bool(lines or hubs))
        width = max([width, *(box[2] + MARGIN for box in self.taken)])
        title = _clean(f"{self.name}: GPUs and what joins them")
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
                f'width="{width:.0f}" height="{height:.0f}" role="img" '
                "font-family=\"system-ui, 'DejaVu Sans', Helvetica, Arial, sans-serif\">",
                f"<title>{title}</title>",
                f'<rect width="100%" height="100%" fill="{PAPER}"/>',
                _text(MARGIN, MARGIN + 8, self.name, 18, weight="bold"),
                *body,
                *legend,
                "</svg>\n",
            ]
        )

    def _even(self, group: Sequence[int]) -> bool:
        return len({link_between(self.links, a, b) for a, b in combinations(group, 2)}) == 1

    def _count(self, pair: tuple[int, int]) -> int:
        return nvlinks(link_between(self.links, *pair))

    def _drawn(self, indexes: Sequence[int]) -> set[tuple[int, int]]:
        """The pairs with a line: all NVLinks, and PCIe links where they are few."""
        pairs = list(combinations(indexes, 2))
        found = {pair for pair in pairs if self._count(pair)}
        within = {pair for each in self.instances for pair in combinations(sorted(each.gpus), 2)} & set(pairs)
        if len(indexes) <= SMALL_BOX:
            return set(pairs)
        return found | within if len(within - found) <= MOST_PCIE else found

    def _order(
        self, indexes: list[int], lines: Iterable[tuple[int, int]], inside: Iterable[tuple[int, int]]
    ) -> list[int]:
        weights = {pair: 1 for each in self.instances for pair in combinations(sorted(each.gpus), 2)}
        weights = {pair: 1 for pair in weights if set(pair) <= set(indexes)}
        weights |= dict.fromkeys(inside, 1)
        weights |= {pair: 8 if self._count(pair) else weights.get(pair, 0) for pair in lines}
        together = [gpu for group in islands(self.gpus, self.links) for gpu in group]
        served = [gpu for each in self.instances for gpu in each.gpus if gpu in indexes]
        served = list(dict.fromkeys([*served, *indexes]))
        return ordered(indexes, weights, [indexes, together, served])

    def _line(self, pair: tuple[int, int], centres: Mapping[int, Point]) -> str:
        (ax, ay), (bx, by) = centres[pair[0]], centres[pair[1]]
        count = self._count(pair)
        look = f'stroke="{STEEL}" stroke-width="{_thickness(count)}"' if count else _DASHED
        return f'<line x1="{ax:.0f}" y1="{ay:.0f}" x2="{bx:.0f}" y2="{by:.0f}" {look}/>'

    def _label(self, pair: tuple[int, int], lines: Sequence[tuple[int, int]], centres: Mapping[int, Point]) -> str:
        """The link's word on its line, near the middle, over no other box or word and if possible off other lines.

        Where there is no room, PCIe goes without: the legend has the weakest link of each instance.
        """
        (ax, ay), (bx, by) = centres[pair[0]], centres[pair[1]]
        words = link_between(self.links, *pair)
        half = 4 + 4 * len(words)
        others = [(centres[one], centres[other]) for one, other in lines if (one, other) != pair]
        spots = []
        for off in (0, 0.08, -0.08, 0.15, -0.15, 0.2, -0.2, 0.24, -0.24):
            x, y = ax + (bx - ax) * (0.5 + off), ay + (by - ay) * (0.5 + off)
            place = (x - half, y - 9, x + half, y + 9)
            covers = any(_overlap(place, other) for other in self.taken)
            spots.append((covers, any(distance((x, y), *line) < 14 for line in others), abs(off), x, y, place))
        covers, _, _, x, y, place = min(spots)
        if covers and not self._count(pair):
            return ""
        self.taken.append(place)
        return _pill(x, y, half, words, bool(self._count(pair)))

    def _hub(self, hub: Sequence[int], centres: Mapping[int, Point]) -> tuple[str, str]:
        """(spokes, node) of a mesh of equal links: each GPU of it reaches each other so."""
        x = sum(centres[gpu][0] for gpu in hub) / len(hub)
        y = sum(centres[gpu][1] for gpu in hub) / len(hub)
        words = f"{link_between(self.links, hub[0], hub[1])} each to each"
        half = 8 + 4 * len(words)
        self.taken.append((x - half, y - 9, x + half, y + 9))
        width = _thickness(self._count((hub[0], hub[1]))) / 2  # so many of them meet
        spokes = [
            f'<line x1="{centres[gpu][0]:.0f}" y1="{centres[gpu][1]:.0f}" x2="{x:.0f}" y2="{y:.0f}" '
            f'stroke="{STEEL}" stroke-width="{width}"/>'
            for gpu in hub
        ]
        return "\n".join(spokes), _pill(x, y, half, words, True)

    def _card(self, gpu: Mapping[str, Any], centre: Point) -> str:
        left, top = centre[0] - WIDE / 2, centre[1] - HIGH / 2
        owner = next((place for place, each in enumerate(self.instances) if gpu["index"] in each.gpus), None)
        memory = f"{gpu['memory_mib'] / 1024:.0f} GiB" if gpu["memory_mib"] else "? GiB"
        served = self.instances[owner].name if owner is not None else ""
        kind = arch(gpu) if gpu["compute_capability"] else "sm?"
        return "\n".join(
            [
                f'<rect x="{left:.0f}" y="{top:.0f}" width="{WIDE}" height="{HIGH}" rx="10" {_look(owner)}/>',
                _text(left + 12, top + 22, f"GPU {gpu['index']}", 14, weight="bold"),
                _text(left + WIDE - 12, top + 22, kind, 12, anchor="end"),
                _text(left + 12, top + 40, f"{_short(_plain_name(gpu['name']), 15)} · {memory}", 11),
                _text(left + 12, top + 57, _short(served, 24), 11),
            ]
        )

    def _legend(self, top: float, linked: bool) -> tuple[list[str], float, float]:
        """(parts, width, height) of the lines below the picture, and of the whole with them."""
        rows = [(_swatch(place), self._words(each)) for place, each in enumerate(self.instances)]
        free = [gpu["index"] for gpu in self.gpus if not any(gpu["index"] in each.gpus for each in self.instances)]
        if free and self.instances:
            rows.append((_swatch(None), f"unused: {_gpus(free)}"))
        counts = set(bridges(self.links).values())
        if counts:
            sample = f'<line x1="0" x2="28" y1="-5" y2="-5" stroke="{STEEL}" stroke-width="{_thickness(min(counts))}"/>'
            rows.append((sample, "NVLink, the thicker the more links"))
        indexes = [gpu["index"] for gpu in self.gpus]
        over_pcie = any(not self._count(pair) for pair in self._drawn(indexes))
        if over_pcie and linked:
            rows.append((f'<line x1="0" x2="28" y1="-5" y2="-5" {_DASHED}/>', "PCIe (PIX, PXB, PHB, NODE or SYS)"))
        elif len(indexes) > 1:
            worst = weakest(self.links, indexes)
            if not nvlinks(str(worst)):
                rows.append(("", f"PCIe links are not drawn; the weakest is {worst}"))
        parts = []
        for place, (sign, words) in enumerate(rows):
            y = top + place * LINE
            parts.append(f'<g transform="translate({MARGIN} {y:.0f})">{sign}</g>')
            parts.append(_text(MARGIN + 40, y, words, 13))
        longest = max([len(words) * 7.7 + 40 for _, words in rows] + [len(self.name) * 12.0, 240])
        return parts, longest + 2 * MARGIN, top + len(rows) * LINE + MARGIN - LINE

    def _words(self, each: Shown) -> str:
        where = [_gpus(each.gpus)] + ([each.link] if each.link else []) + [f"port {each.port}"]
        return f"{each.name}: {', '.join(where)}"


_DASHED = f'stroke="{GREY}" stroke-width="1.2" stroke-dasharray="5 4"'


def _shifted(centres: Mapping[int, Point]) -> dict[int, Point]:
    """The same with the boxes below the title and right of the margin."""
    left = min((x for x, _ in centres.values()), default=0) - WIDE / 2 - MARGIN
    top = min((y for _, y in centres.values()), default=0) - HIGH / 2 - MARGIN - 1.5 * LINE
    return {gpu: (x - left, y - top) for gpu, (x, y) in centres.items()}


def _overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _thickness(links: int) -> float:
    """Pixels: 2.75 for one NVLink, 1.75 more for each further one, at most 9."""
    return min(1 + 1.75 * links, 9)


def _look(owner: int | None) -> str:
    if owner is None:
        return f'fill="#f2f2f2" stroke="{GREY}" stroke-width="1.5"'
    dashed = ' stroke-dasharray="7 3"' if owner // len(COLOURS) % 2 else ""
    return f'fill="{COLOURS[owner % len(COLOURS)]}" stroke="{INK}" stroke-width="1.5"{dashed}'


def _swatch(owner: int | None) -> str:
    return f'<rect x="0" y="-13" width="28" height="16" rx="4" {_look(owner)}/>'


def _pill(x: float, y: float, half: float, words: str, strong: bool) -> str:
    border = f' stroke="{INK}" stroke-width="1"' if strong else ""
    rect = (
        f'<rect x="{x - half:.0f}" y="{y - 9:.0f}" width="{2 * half:.0f}" height="18" rx="9" fill="{PAPER}"{border}/>'
    )
    colour, weight = (INK, "bold") if strong else ("#595959", "normal")
    return rect + _text(x, y + 4, words, 11, weight=weight, anchor="middle", colour=colour)


def _text(
    x: float, y: float, words: str, size: int, weight: str = "normal", anchor: str = "start", colour: str = INK
) -> str:
    more = ("" if weight == "normal" else f' font-weight="{weight}"') + (
        "" if anchor == "start" else f' text-anchor="{anchor}"'
    )
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{colour}"{more}>{_clean(words)}</text>'


def _gpus(indexes: Sequence[int]) -> str:
    if not indexes:
        return "no GPU"
    return ("GPU " if len(indexes) == 1 else "GPUs ") + ", ".join(map(str, indexes))


def _plain_name(name: str | None) -> str:
    """Without what all cards' names begin with: `RTX 3090`, `V100-SXM2-32GB`."""
    return re.sub(r"^(NVIDIA |GeForce |Tesla )+", "", name or "unknown card")


def _short(words: str, most: int) -> str:
    """At most so many characters; names that differ mostly do so at the end, so the middle goes."""
    tail = most // 3
    return words if len(words) <= most else f"{words[: most - tail - 1]}…{words[-tail:]}"


def _clean(words: str) -> str:
    """Escaped for XML, without the characters that XML 1.0 does not allow."""
    return html.escape(re.sub("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "", words))
