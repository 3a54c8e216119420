"""What a preflight asks a box beside its facts: apt's state, and whether addresses answer. Nothing is changed."""

from __future__ import annotations

from hostkit import apt_state, reachable
from hostkit.roots import Roots

BEGINNING = "/InRelease"


def run(spec: dict) -> dict:
    """spec: + addresses: urls that the box would fetch from; + apt: whether to ask for those of its apt sources, too

    Returns {"apt": see hostkit.apt_state, "addresses": {url: see hostkit.reachable}}.
    """
    apt = apt_state.read(Roots())
    found = reachable.ask(spec["addresses"])
    if spec["apt"]:
        # Of each source the file that apt begins with: which of the others there are, that one says.
        web = [url for url in apt["addresses"] if url.startswith(("http://", "https://")) and url.endswith(BEGINNING)]
        answers = reachable.ask(web, apt["proxies"])
        older = {url: url[: -len(BEGINNING)] + "/Release" for url, told in answers.items() if told["status"] == 404}
        second = reachable.ask(list(older.values()), apt["proxies"])
        found.update({url: second[older[url]] if url in older else told for url, told in answers.items()})
    return {"apt": apt, "addresses": found}
