"""What the stand-in does otherwise than it should, by variables of the instance (`serve_env`).

STANDIN: one or more of these, with commas:
  fail-completions   /health is 200, a completion 500
  slow               a tenth of the speed
  no-drafts          speculative decoding is on and drafts nothing
  rejects-drafts     it drafts, and no token of it is accepted
  wavering           another answer each time, also at temperature 0
  crash-loop         it ends with an error when it starts
  never-ready        it starts, and never listens
  crash-after-Ns     it ends with an error N seconds after it was ready
  unknown-variable   it warns of a variable that it does not know, as vLLM does
STANDIN_START_SECONDS: how long it loads before it answers. STANDIN_TOKEN_MS: how long each token takes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

KNOWN = (
    "fail-completions", "slow", "no-drafts", "rejects-drafts", "wavering", "crash-loop", "never-ready",
    "unknown-variable",
)  # fmt: skip
TOKEN_MS = 5.0
SLOWER = 10


@dataclass(frozen=True)
class Moods:
    """+ crash_after: seconds; None: never"""

    names: frozenset[str] = frozenset()
    crash_after: float | None = None
    start_seconds: float = 0.0
    token_seconds: float = TOKEN_MS / 1000

    def __contains__(self, name: str) -> bool:
        return name in self.names


def of(environment: Mapping[str, str]) -> Moods:
    """Raises ValueError for a word that means nothing here."""
    words = [word.strip() for word in environment.get("STANDIN", "").split(",") if word.strip()]
    timed = [found for word in words if (found := re.fullmatch(r"crash-after-([0-9]+(?:\.[0-9]+)?)s", word))]
    names = frozenset(words) - {found[0] for found in timed}
    if unknown := sorted(names - set(KNOWN)):
        raise ValueError(f"STANDIN={environment['STANDIN']}: {', '.join(unknown)} is none of {', '.join(KNOWN)}")
    token = float(environment.get("STANDIN_TOKEN_MS", TOKEN_MS)) / 1000
    return Moods(
        names,
        float(timed[-1][1]) if timed else None,
        float(environment.get("STANDIN_START_SECONDS", 0)),
        token * (SLOWER if "slow" in names else 1),
    )
