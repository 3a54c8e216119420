"""The whole deploy on one page: probe, plan, check; then toolkit, host, runtime, model, release, rollout."""

from operations import deployment, host, model, release, rollout, runtime, toolkit

# One look at the box, then every decision. A box that fails here, or that a rule refuses, is out of this run with
# nothing touched on it; the others go on.
box = deployment.look()

if box:
    toolkit.packages(name="Toolkit and packages", box=box)
    host.settings(name="Host settings", box=box)
    runtime.installed(name="Runtimes", box=box)
    model.in_place(name="Models", box=box)
    release.staged(name="Releases", box=box)
    rollout.activated(name="Rollout", box=box)
