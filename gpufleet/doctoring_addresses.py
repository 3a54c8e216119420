"""What a deploy would ask from outside, and who would: addresses to be tried before. No I/O."""

from __future__ import annotations

from collections.abc import Iterable

from gpufleet.model_files import items
from gpufleet.pending import Pending
from gpufleet.toolkit import distro, is_of_toolkit
from gpufleet.wheelhouse import hub
from gpufleet.wheelhouse.items import FromHub, FromUrl


def of_box(wanted: Pending) -> dict[str, str]:
    """{url: what for} that the box itself would fetch from: NVIDIA's repository, where the toolkit is to be installed.

    And wheels and models, where `fetch.by` is "boxes"; the controller looks for these as well, see `of_controller`.
    What apt's own sources are only the box can tell.
    """
    mirrors = wanted.plan.settings.mirrors
    found: dict[str, str] = {}
    if any(is_of_toolkit(name) for name in wanted.changes.packages):
        found[mirrors.cuda_key.replace("{distro}", distro(wanted.plan.facts["os"]))] = "the CUDA toolkit"
    settings = wanted.plan.settings
    if settings.fetch.by == "boxes" and not settings.fetch.offline:
        found |= _indexes(wanted) | _models(wanted)
    return found


def of_controller(plans: Iterable[Pending]) -> dict[str, str]:
    """{url: what for} that this controller would fetch from, for what the boxes lack."""
    found: dict[str, str] = {}
    for wanted in plans:
        if not wanted.plan.settings.fetch.offline:
            found |= _indexes(wanted) | _models(wanted)
    return found


def needs_default_index(plans: Iterable[Pending]) -> bool:
    """Whether some runtime is to be made of wheels of pip's own index: which that is, only pip knows."""
    return any(
        wanted.changes.runtimes and not wanted.plan.settings.mirrors.pypi and not wanted.plan.settings.fetch.offline
        for wanted in plans
    )


def _indexes(wanted: Pending) -> dict[str, str]:
    mirrors = wanted.plan.settings.mirrors
    found: dict[str, str] = {}
    for runtime in wanted.changes.runtimes:
        if mirrors.pypi:
            found[mirrors.pypi] = "wheels"
        if torch := mirrors.torch or runtime.stack.torch_index:
            found[torch] = "wheels of torch"
    return {url: what for url, what in found.items() if url.startswith(("http://", "https://"))}


def _models(wanted: Pending) -> dict[str, str]:
    """One file of each model, the smallest. Raises ConfigError for a hub whose address is none."""
    mirrors = wanted.plan.settings.mirrors
    found: dict[str, str] = {}
    for model in wanted.changes.models:
        files = sorted(items(model, mirrors), key=lambda item: item.size or 0)
        for item in files[:1]:
            if isinstance(item.origin, FromUrl):
                found[item.origin.url] = f"the model {model.name}"
            elif isinstance(item.origin, FromHub):
                found[hub.address(item.origin, hub.checked(hub.endpoint(mirrors)))] = f"the model {model.name}"
    return found
