"""Builds all that a lab needs, and lays it out under www/ as the boxes see it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lab import apt, base, cache, cuda, engine, host, model, nvml, wheelhouse
from lab.paths import Settings


@dataclass(frozen=True)
class Content:
    base: Path
    debian: Path
    cuda: Path
    simple: Path
    model: Path
    engine: Path


def build(settings: Settings) -> Content:
    host.ensure()
    with cache.locked(settings.cache, f"the cache {settings.cache}"):
        image = base.image(settings)
        nvml.compile(settings.cache)
        standin = engine.build(settings)
        return Content(
            base=image / "root",
            debian=apt.debian(settings, image / "debs"),
            cuda=cuda.repository(settings),
            simple=engine.with_index(settings, wheelhouse.index(settings), standin),
            model=tiny_model(settings),
            engine=standin,
        )


def tiny_model(settings: Settings) -> Path:
    """The directory with files/ and info.json; made anew when its generator changes."""

    def make(directory: Path) -> None:
        info = model.build(directory / "files")
        (directory / "info.json").write_text(json.dumps(info))

    return cache.once(settings.cache, "model", {"generator": cache.file_digest(Path(model.__file__))}, make)


def publish(settings: Settings, content: Content) -> dict[str, Any]:
    """Point www/ at what was built, and write the catalogue: both models, and the stand-in's stack with its lock.

    Returns what lab.json says of the real engine's model.
    """
    info = json.loads((content.model / "info.json").read_text())
    point(settings.www / "simple", content.simple)
    point(settings.www / "debian", content.debian)
    point(settings.www / "cuda", content.cuda)
    point(settings.www / "models" / info["name"] / info["revision"], content.model / "files")
    catalogue = settings.home / "catalogue" / "models" / f"{info['name']}.yaml"
    catalogue.parent.mkdir(parents=True, exist_ok=True)
    catalogue.write_text(model.catalogue(info, settings.url("models/")))
    pages = engine.pages(content.engine, settings.url("models/"))
    engine.write(pages, settings.home / "catalogue")
    revision = yaml.safe_load(pages[f"models/{engine.NAME}.yaml"])["revision"]
    point(settings.www / "models" / engine.NAME / revision, content.engine / "model")
    return {"name": info["name"], "revision": info["revision"], "catalogue": str(catalogue)}


def point(link: Path, target: Path) -> None:
    """Make or move a link in one step: a box that is fetching never finds nothing."""
    link.parent.mkdir(parents=True, exist_ok=True)
    aside = link.with_name(f".{link.name}-{os.getpid()}")
    aside.symlink_to(target)
    aside.replace(link)
