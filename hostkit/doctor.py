"""What a preflight asks a box beside its facts: apt's state, and whether addresses answer. Nothing is changed."""

from __future__ import annotations

from hostkit import apt_state, reachable
from hostkit.roots import Roots


def run(spec: dict) -> dict:
    """spec: + addresses: urls that the box would fetch from; + apt: whether to ask for those of its apt sources, too

    Returns {"apt": see hostkit.apt_state, "addresses": {url: see hostkit.reachable}}.
    """
    apt = apt_state.read(Roots())
    found = reachable.ask(spec["addresses"])
    if spec["apt"]:
        web = [url for url in apt["addresses"] if url.startswith(("http://", "https://"))]
        found.update(reachable.ask(web, apt["proxies"]))
    return {"apt": apt, "addresses": found}
