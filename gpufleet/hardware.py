"""What of a box's hardware is another than before: cards, their memory, links, cores, RAM, the machine itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

# A kernel or a firmware keeps some of the RAM, and a driver (or ECC) some of a card's, and not always as much.
RAM_SHARE, CARD_SHARE = 0.10, 0.02

Facts = Mapping[str, Any]
Cards = dict[str, Mapping[str, Any]]  # by UUID


def differences(old: Facts, new: Facts) -> list[str]:
    """What of the hardware changed between two looks at a box, a line each, in a user's words; empty when nothing did.

    Driver, kernel and distribution are no hardware. What either look could not tell is no difference: cards are not
    compared when the old look had no driver to see them by, nor when the driver there now does not answer.
    """
    return [*_machine(old, new), *_cards(old, new), *_links(old, new)]


def _machine(old: Facts, new: Facts) -> Iterator[str]:
    before, now = old.get("machine_id"), new.get("machine_id")
    if before and now and before != now:
        yield f"another machine, or installed anew: machine-id {before} before, {now} now"
    for what, key in (("cores", "cores"), ("threads", "threads")):
        before, now = (old.get("cpu") or {}).get(key), (new.get("cpu") or {}).get(key)
        if before and now and before != now:
            yield f"CPU: {before} {what} before, {now} now"
            break  # the threads follow the cores
    before, now = (old.get("memory") or {}).get("total_mib"), (new.get("memory") or {}).get("total_mib")
    if before and now and _apart(before, now, RAM_SHARE):
        yield f"RAM: {before} MiB before, {now} MiB now"


def _cards(old: Facts, new: Facts) -> Iterator[str]:
    if not _comparable(old, new):
        return
    before, now = _by_uuid(old), _by_uuid(new)
    if before and not new.get("driver"):
        yield f"the NVIDIA driver is gone, and with it the sight of {len(before)} GPUs"
        return
    gone = [card for uuid, card in before.items() if uuid not in now]
    come = [card for uuid, card in now.items() if uuid not in before]
    for card in gone:
        other = next((item for item in come if item.get("bus_id") and item["bus_id"] == card.get("bus_id")), None)
        if other:
            come.remove(other)
            yield f"GPU {card['index']} ({card['bus_id']}): {_card(card)} before, {_card(other)} now"
        else:
            yield f"{_placed(card)} is gone"
    yield from (f"{_placed(card)} is new" for card in come)
    for uuid in [uuid for uuid in before if uuid in now]:
        yield from _same_card(before[uuid], now[uuid])


def _same_card(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    if before.get("bus_id") and now.get("bus_id") and before["bus_id"] != now["bus_id"]:
        yield f"GPU {before['index']} ({_card(before)}): at {before['bus_id']} before, at {now['bus_id']} now"
    had, has = before.get("memory_mib"), now.get("memory_mib")
    if had and has and _apart(had, has, CARD_SHARE):
        yield f"GPU {before['index']} ({_card(before)}): {had} MiB before, {has} MiB now"


def _links(old: Facts, new: Facts) -> Iterator[str]:
    """Pairs of cards that both looks have; by UUID, since indexes move when a card goes."""
    if not _comparable(old, new):
        return
    cards = [(card["index"], uuid) for uuid, card in _by_uuid(old).items() if uuid in _by_uuid(new)]
    places = {uuid: card["index"] for uuid, card in _by_uuid(new).items()}
    for (one, first), (other, second) in combinations(sorted(cards), 2):
        before = (old.get("links") or {}).get(f"{one}-{other}")
        pair = sorted((places[first], places[second]))
        now = (new.get("links") or {}).get(f"{pair[0]}-{pair[1]}")
        if before and before != now:
            yield f"{one}-{other}: {before} before, {now or 'not told'} now"


def _comparable(old: Facts, new: Facts) -> bool:
    """Whether both looks could see cards. A driver that is there and shows none has failed: that is said elsewhere."""
    return bool(old.get("driver")) and not (new.get("driver") and not new.get("gpus") and _failed(new))


def _failed(facts: Facts) -> bool:
    return any(error.get("source") == "nvml" for error in facts.get("errors") or [])


def _by_uuid(facts: Facts) -> Cards:
    return {card["uuid"]: card for card in facts.get("gpus") or [] if card.get("uuid")}


def _card(card: Mapping[str, Any]) -> str:
    return f"{card.get('name') or 'a card'} {card['uuid']}"


def _placed(card: Mapping[str, Any]) -> str:
    where = f" ({card['bus_id']})" if card.get("bus_id") else ""
    return f"GPU {card['index']}{where}, {_card(card)},"


def _apart(before: float, now: float, share: float) -> bool:
    return abs(now - before) > share * before
