"""Activations that were cut off: finished, or put back. Run by gpufleet-resume at each boot, and when a job fails."""

from __future__ import annotations

from hostkit import books, events, gates, put_back, state, switch
from hostkit.activation import Activation, as_failure, finished_by_resume
from hostkit.errors import Failure

ATTEMPTS = 2  # what was cut off as often is not tried again


def run(spec: dict) -> dict:
    """Each instance whose state has an activation. Returns {"resumed": {instance: what became of it}}.

    Never raises: a boot goes on, and what went wrong is in the journal.
    """
    found = {}
    for name, known in state.load()["instances"].items():
        if known.get("activation"):
            try:
                found[name] = one(name, known)
            except Exception as error:
                found[name] = str(as_failure(error))
            events.log("{}: {}".format(name, found[name]))
    return {"resumed": found}


def one(name: str, known: dict) -> str:
    begun = known["activation"]
    step, digest = begun["step"], begun["to"]
    state.journal("resumed", instance=name, digest=digest, step=step, attempts=begun["attempts"])
    if step == books.COMMITTING:
        books.finish(name, begun)
        return "the activation of {} had ended; its books are right now".format(digest)
    again = {**begun, "attempts": begun["attempts"] + 1, "restart": begun["restart"] or begun["touched"]}
    spec = gates.read(name, digest)
    activation = Activation(spec or {"instance": name, "digest": digest}, known, again, hold=begun.get("hold", True))
    why = reason_to_go_back(name, begun, spec)
    if why is None:
        activation.run()
        return "release {} serves".format(digest)
    failure = Failure("the activation of {} was cut off at {}; {}".format(digest, step, why), "deploy again")
    # Whatever was being done when it was cut off, nothing is known to serve now.
    activation.books.record["step"] = "resuming"
    with finished_by_resume():
        put_back.after(activation, failure)
    raise failure


def reason_to_go_back(name: str, begun: dict, spec: "dict | None") -> "str | None":
    if begun["step"] in ("putting-back", "gating-back"):
        return "it was being put back"
    if begun["attempts"] >= ATTEMPTS:
        return "that was the second time"
    if spec is None or not switch.is_staged(name, begun["to"]):
        return "its files are gone"
    return None
