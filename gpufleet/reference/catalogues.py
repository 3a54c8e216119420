"""The stacks and the models that come along, a row each, by their pages."""

from __future__ import annotations

from gpufleet import catalogue, paths
from gpufleet.models import Model
from gpufleet.reference.regions import table
from gpufleet.stacks import Stack

STACKS = ("stack", "what", "by default for", "can be installed", "python3 of the box", "CUDA toolkit", "disk, MiB")
MODELS = ("model", "what", "put it in", "weights, MiB", "context", "streams", "served as", "port")


def stacks() -> dict[str, str]:
    """The table of `files/stacks`."""
    found = catalogue.load(Stack, "stack", paths.stack_folders()).values()
    return {"stacks": table(STACKS, [_stack(stack) for stack in found])}


def models() -> dict[str, str]:
    """The table of `files/models`."""
    found = catalogue.load(Model, "model", paths.model_folders()).values()
    return {"models": table(MODELS, [_model(model) for model in found])}


def _stack(stack: Stack) -> tuple[str, ...]:
    return (
        f"`{stack.name}`",
        stack.title,
        ", ".join(stack.default_for) or "no",
        "yes" if stack.installable else "not yet",
        ", ".join(sorted(stack.python, key=lambda version: int(version.split(".")[1]))),
        stack.cuda_toolkit or ("none" if stack.arch == ["cpu"] else "by the card"),
        f"{stack.disk_mib:,}",
    )


def _model(model: Model) -> tuple[str, ...]:
    weights = model.architecture.weights_mib if model.architecture else None
    return (
        f"`{model.name}`",
        model.title,
        f"`{model.source.path}`" if model.source.path else "nothing: it is fetched",
        f"{weights:,}" if weights else "not known",
        f"{model.args['max-model-len']:,}" if "max-model-len" in model.args else "the model's own",
        f"{model.streams or 'not set'}",
        f"`{model.served_name}`",
        f"{model.port or 'first free'}",
    )
