"""Rendering a release: unit, engine configuration and environment of an instance as files, named by their digest."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache

import jinja2

from gpufleet import starting
from gpufleet.dialect import DIALECTS
from gpufleet.instance import TEMPLATE, Instance, template_at
from gpufleet.kit import NEWEST
from gpufleet.paths import ROOT, product_files
from gpufleet.spelling import config, words

STOP_SECONDS = 60  # what still runs then is killed, and with it what holds the cards
SPARE_SECONDS = 60  # beside the wait for free memory: a start on a slow disk


@dataclass(frozen=True)
class Release:
    """All files of one instance, by path relative to the release's directory; `digest` is of the manifest.

    `links`: symbolic links beside them, by name; the manifest names them.
    """

    instance: str
    digest: str
    files: dict[str, str]
    links: dict[str, str]


def model_path(instance: Instance) -> str:
    return f"{ROOT}/models/{instance.model.name}/{instance.model.directory}"


def instance_path(instance: Instance) -> str:
    return f"{ROOT}/instances/{instance.name}"


def release(instance: Instance) -> Release:
    """Render an instance. The same plan gives the same bytes, and so the same digest."""
    values = {
        "name": instance.name,
        "title": f"{instance.model.name} by {instance.stack.name}",
        "command": command(instance),
        "kit": NEWEST,
        "start_file": starting.FILE,
        "model": model_path(instance),
        "models_home": instance.models_home,  # systemd does not follow the link
        "release": f"{instance_path(instance)}/current",
        # A model that lies in somebody's home must be readable there; nothing else of it is.
        "home": any(path.startswith(("/home/", "/root/")) for path in instance.model.places),
        "gpus": bool(instance.gpus),
        "start_timeout": max(instance.model.gate.timeout, starting.WAIT_SECONDS + SPARE_SECONDS),
        "stop_timeout": STOP_SECONDS,
    }
    files = {
        starting.unit_name(instance): _templates().get_template("instance.service.j2").render(values),
        "serve.yaml": config(instance.args, instance.stack.table),
        "serve.env": environment_file(instance.env),
        starting.FILE: json.dumps(starting.spec(instance), indent=1, sort_keys=True) + "\n",
    }
    if template := own_template(instance):
        files[TEMPLATE] = template
    links = {"runtime": instance.runtime.path, "model": model_path(instance)}
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in sorted(files.items())}
    # What the service reads besides its files: another model under the same name is another release.
    model = instance.model.digest
    parts = {"schema": 1, "files": digests, "links": links, "model": model, "runtime": instance.runtime.name}
    manifest = json.dumps(parts, indent=1, sort_keys=True) + "\n"
    digest = hashlib.sha256(manifest.encode()).hexdigest()[:16]
    return Release(instance.name, digest, {**files, "manifest.json": manifest}, links)


def own_template(instance: Instance) -> str | None:
    """The chat template of the model's page, unless a flag names another one."""
    flag = DIALECTS[instance.stack.engine].chat_template
    served = flag is not None and instance.args.get(flag) == template_at(instance.name)
    return instance.model.template if served else None


def command(instance: Instance) -> list[str]:
    """The words that start the engine: vLLM reads its flags from a file, lmdeploy takes them as words."""
    runtime, model = instance.runtime.path, model_path(instance)
    if instance.stack.engine == "lmdeploy":
        return [f"{runtime}/bin/lmdeploy", "serve", "api_server", model, *words(instance.args, instance.stack.table)]
    return [f"{runtime}/bin/vllm", "serve", model, "--config", f"{instance_path(instance)}/current/serve.yaml"]


def environment_file(env: dict[str, str]) -> str:
    """systemd's EnvironmentFile, each value in double quotes (systemd.exec(5): `\\` and `"` are escaped)."""
    escaped = {key: value.replace("\\", "\\\\").replace('"', '\\"') for key, value in env.items()}
    return "".join(f'{key}="{escaped[key]}"\n' for key in sorted(escaped))


def unit_word(value: str) -> str:
    """One word of a unit file: quoted, with systemd's specifiers and variables made literal."""
    quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$").replace("\n", "\\n")
    return f'"{quoted}"'


@cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(  # noqa: S701 - unit files, not HTML: values are quoted by unit_word
        loader=jinja2.FileSystemLoader(product_files() / "templates"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["word"] = unit_word
    return environment
