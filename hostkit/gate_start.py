"""Waiting for an instance until it is healthy: what is slow is waited for; a stall, a crash loop, a death are told."""

from __future__ import annotations

import time
from typing import Optional

from hostkit import events, gate_log, systemd
from hostkit.errors import Failure
from hostkit.gate_http import Client, quoted
from hostkit.gate_life import Life

LOOK_SECONDS = 0.5
SOON_SECONDS = 0.1  # as long as it may be one that needs no time to load
SETTLED_SECONDS = 2  # a new start shows by then; a failed one waits RestartSec=10 before the next
PROGRESS_SECONDS = 15
STALLED_SECONDS = 300
LOOP = 2  # starts by systemd itself, after crashes


class Start:
    """One start of one unit, from the moment it was asked for.

    + began: when, in seconds since the epoch
    + old: the process that is being replaced; while it lives, nothing that is seen is of the new one
    + pid: of the process that became healthy; `ready`: seconds from the beginning to that
    + whole: whether that process was started since, and not long ago, so that all of its log is there
    """

    def __init__(self, unit: str, client: Client, timeout: float, began: float, old: Optional[int]) -> None:
        self.unit, self.client, self.timeout, self.began, self.old = unit, client, timeout, began, old
        self.invocations: list[str] = []
        self.crashes = 0
        self.pid: Optional[int] = None
        self.ready = 0.0
        self.whole = True
        self._base: Optional[int] = None
        self._told_crash = False
        self._life = Life()

    def wait(self) -> None:
        """Raises Failure naming the first error of the log as the reason."""
        started = told = time.monotonic()
        before = max(0.0, time.time() - self.began)
        while True:
            service, now = systemd.show(self.unit), time.monotonic()
            self._note(service)
            if now - started > SETTLED_SECONDS:
                self._refuse_dead(service)
            running = service["active"] == "active" and service["pid"] not in (None, self.old)
            if running and self.client.healthy():
                self.pid, self.ready = service["pid"], round(time.monotonic() - started + before, 1)
                self.whole = service.get("since", started) >= started - before - SETTLED_SECONDS
                return
            if now - started > self.timeout:
                raise Failure(
                    "{} did not answer on port {} within {} s; {}".format(
                        self.unit, self.client.port, self.timeout, self._last()
                    ),
                    "follow `journalctl -u {}` on the box; a model that needs longer has gate.timeout in its "
                    "page".format(self.unit),
                )
            if now - told > PROGRESS_SECONDS:
                told = now
                self._progress(service, now - started)
            time.sleep(SOON_SECONDS if now - started < SETTLED_SECONDS else LOOK_SECONDS)

    def check_up(self) -> None:
        """Raise Failure when the process that became healthy is no longer the one that runs."""
        service = systemd.show(self.unit)
        self._note(service)
        if service["active"] != "active" or service["pid"] != self.pid:
            raise self.died()

    def lines(self) -> list[str]:
        return list(gate_log.since(self.unit, self.invocations, self.began))

    def died(self, how: str = "did not stay up") -> Failure:
        lines = self.lines()
        return Failure(
            "{} {}: {}".format(self.unit, how, gate_log.first_error(lines)), gate_log.remedy(self.unit, lines)
        )

    def _note(self, service: dict) -> None:
        """Take down which starts there were, and how many systemd made by itself."""
        if self.old is not None and service["pid"] == self.old:
            return
        invocation, restarts = service.get("invocation"), service.get("restarts") or 0
        dead = service["sub"] == "auto-restart" or (service["active"] == "failed" and not service["job"])
        if invocation and (service["pid"] or dead) and invocation not in self.invocations:
            self.invocations.append(invocation)
        if self._base is None or restarts < self._base:  # the count begins anew when somebody starts the unit
            self._base = restarts if self._base is None else 0
        self.crashes = restarts - self._base

    def _refuse_dead(self, service: dict) -> None:
        if service["active"] in ("failed", "inactive") and not service["job"]:
            raise self.died()
        if self.crashes >= LOOP:
            raise self.died("crashes again and again ({} times by now)".format(self.crashes))
        if service["sub"] == "auto-restart" and not self._told_crash:
            self._told_crash = True
            cause = gate_log.first_error(self.lines())
            known = gate_log.hint(cause)
            if known and known.lasting:
                raise self.died()
            events.log("{} crashed, and systemd starts it once more: {}".format(self.unit, cause))

    def _progress(self, service: dict, seconds: float) -> None:
        lines = gate_log.latest(self.unit, self.invocations, self.began)
        quiet = self._life.look(service.get("group") or "", lines) if service["active"] == "active" else 0.0
        said = ": " + quoted(lines[-1]) if lines and lines[-1].strip() else ""
        if quiet >= STALLED_SECONDS:
            raise Failure(
                "{} stands still: no processor time, no disk read and no new line of its log for {:.0f} s; its last "
                "one{}".format(self.unit, quiet, said or " is missing"),
                "see `journalctl -u {}` and `journalctl -k -g 'Xid|NVRM'` on the box; a hang while several cards find "
                "each other is a matter of P2P or NCCL, and an unkillable process needs a reboot".format(self.unit),
            )
        doubt = " and has done nothing for {:.0f} s".format(quiet) if quiet > PROGRESS_SECONDS * 2 else ""
        events.log("{} is starting ({:.0f} s){}{}".format(self.unit, seconds, doubt, said))

    def _last(self) -> str:
        lines = [line for line in gate_log.latest(self.unit, self.invocations, self.began) if line.strip()]
        return "its log ends with: {}".format(quoted(lines[-1])) if lines else "its log is empty"
