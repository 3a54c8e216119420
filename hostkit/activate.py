"""Bringing an instance to a release: restarted when something changed, else only gated."""

from __future__ import annotations

from hostkit import books, gates, resume_unit, switch, systemd
from hostkit.activation import Activation
from hostkit.errors import Failure
from hostkit.releases import current_release, unit_name
from hostkit.roots import Roots


def run(spec: dict) -> dict:
    """Activate `digest` of `instance`, see hostkit.activation.

    + runtime, model: directories that must be complete before anything is switched
    + gate: see hostkit.gate; port: what it will listen on
    + gpus: [{"uuid", "need_mib"}], memory that must be free; warm: directories read into the page cache
    + instead_of: names of instances that leave the box; stopped before this one starts, started again when it fails
    + replaces: units of the owner's whose place it takes, see hostkit.replaced
    + keep: how many releases stay; run: the run of the deploy, for the journal
    Raises Failure, after which the release before serves, or what the failure says.
    """
    name = spec["instance"]
    resume_unit.install()
    known = books.settled(name)
    refuse_held(name, known.get("held"), spec["digest"])
    gates.keep(spec)
    begun = books.record(spec, known, "activate", restart=needs_restart(spec, known))
    return Activation(spec, known, begun).run()


def needs_restart(spec: dict, known: dict) -> bool:
    name, digest = spec["instance"], spec["digest"]
    return bool(
        current_release(Roots(), switch.home_of(name)) not in (None, digest)
        or known.get("gated") != digest
        or known.get("stale")
        or (known.get("activation") or {}).get("touched")
        or systemd.show(unit_name(name))["active"] != "active"
        or switch.is_foreign(name)
    )


def refuse_held(name: str, held: "dict | None", digest: str) -> None:
    if held and held.get("digest") != digest:
        raise Failure(
            "{} is held on release {} since {}".format(name, held.get("digest"), held.get("since")),
            "`gpufleet unhold` lets deploys change it again",
        )
