"""The whole deploy on one page: probe, plan, check; lock, toolkit, host, runtime, model, release; rollout in waves."""

from operations import deployment, host, lock, model, release, rollout, runtime, toolkit

# One look at the box, then every decision. A box that fails here, or that a rule refuses, is out of this run with
# nothing touched on it; the others go on.
box = deployment.look()

if box and box.changes:  # a box in order needs nothing more
    lock.taken(name="Lock", box=box)
    toolkit.packages(name="Toolkit and packages", box=box)
    host.settings(name="Host settings", box=box)
    runtime.installed(name="Runtimes", box=box)
    model.in_place(name="Models", box=box)
    release.staged(name="Releases", box=box)

    # Canaries first, then batches; the run ends at the first wave in which a box fails.
    for wave in box.host.loop(rollout.waves()):
        rollout.activated(name=wave.title, box=box, wave=wave)
