"""Rendering a release: unit, engine configuration and environment of an instance as files, named by their digest."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import jinja2
import yaml

from gpufleet.paths import product_files
from gpufleet.plan import Instance
from gpufleet.toolkit import version

ROOT = "/opt/gpufleet"


@dataclass(frozen=True)
class Release:
    """All files of one instance, by path relative to the release's directory; `digest` is of the manifest."""

    instance: str
    digest: str
    files: dict[str, str]


def runtime_path(instance: Instance) -> str:
    return f"{ROOT}/runtimes/{instance.stack.runtime}"


def model_path(instance: Instance) -> str:
    return f"{ROOT}/models/{instance.model.name}/{instance.model.revision}"


def instance_path(instance: Instance) -> str:
    return f"{ROOT}/instances/{instance.name}"


def release(instance: Instance, toolkit: str | None) -> Release:
    """Render an instance. The same plan gives the same bytes, and so the same digest."""
    values = {
        "name": instance.name,
        "title": f"{instance.model.name} by {instance.stack.name}",
        "runtime": runtime_path(instance),
        "model": model_path(instance),
        "release": f"{instance_path(instance)}/current",
        # A model that lies in somebody's home must be readable there; nothing else of it is.
        "home": (instance.model.source.path or "").startswith(("/home/", "/root/")),
        "start_timeout": instance.model.gate.timeout,
    }
    files = {
        f"gpufleet-{instance.name}.service": _templates().get_template("instance.service.j2").render(values),
        "serve.yaml": engine_config(instance.args),
        "serve.env": environment_file(environment(instance, toolkit)),
    }
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in sorted(files.items())}
    # What the service reads besides its files: another model under the same name is another release.
    source = hashlib.sha256(instance.model.source.model_dump_json().encode()).hexdigest()
    parts = {"schema": 1, "files": digests, "model": source, "runtime": instance.stack.runtime}
    manifest = json.dumps(parts, indent=1, sort_keys=True) + "\n"
    return Release(
        instance.name, hashlib.sha256(manifest.encode()).hexdigest()[:16], {**files, "manifest.json": manifest}
    )


def engine_config(args: dict[str, Any]) -> str:
    """The YAML that `vllm serve --config` reads.

    vLLM drops a `false` silently (seen in 0.24.0 and 0.27.1): a switch that is off is written `no-<flag>: true`.
    A value of null leaves a flag out, which is how a stronger layer takes one away. Mappings, in lists too, go
    in as JSON, the only spelling that the command line takes for them.
    """
    lines: dict[str, Any] = {}
    for flag, value in sorted(args.items()):
        if value is None:
            continue
        if value is False:
            lines[flag.removeprefix("no-") if flag.startswith("no-") else f"no-{flag}"] = True
        elif isinstance(value, list):
            lines[flag] = [_as_json(item) for item in value]
        else:
            lines[flag] = _as_json(value)
    return yaml.safe_dump(lines, sort_keys=True, allow_unicode=True, width=10_000)


def _as_json(value: Any) -> Any:
    return json.dumps(value, sort_keys=True, ensure_ascii=False) if isinstance(value, dict) else value


def environment(instance: Instance, toolkit: str | None) -> dict[str, str]:
    """The service's variables: the instance's own, and the places of its runtime, toolkit and caches.

    Caches are separate for each instance and runtime: a compile cache left by another model or version crashes.
    """
    path = [f"{runtime_path(instance)}/bin"]
    env: dict[str, str] = {}
    if toolkit:
        cuda = f"/usr/local/cuda-{version(toolkit)}"
        path.append(f"{cuda}/bin")
        env |= {"CUDA_HOME": cuda, "LD_LIBRARY_PATH": f"{cuda}/lib64"}
    cache = f"/var/cache/gpufleet-{instance.name}/{instance.stack.runtime}"
    env |= {
        "PATH": ":".join([*path, "/usr/local/bin", "/usr/bin", "/bin"]),
        "HOME": f"/var/lib/gpufleet-{instance.name}",
        "VLLM_CACHE_ROOT": f"{cache}/vllm",
        "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor",
        "TRITON_CACHE_DIR": f"{cache}/triton",
        "XDG_CACHE_HOME": f"{cache}/xdg",
        "HF_HUB_OFFLINE": "1",
    }
    return env | instance.env


def environment_file(env: dict[str, str]) -> str:
    """systemd's EnvironmentFile, each value in double quotes (systemd.exec(5): `\\` and `"` are escaped)."""
    escaped = {key: value.replace("\\", "\\\\").replace('"', '\\"') for key, value in env.items()}
    return "".join(f'{key}="{escaped[key]}"\n' for key in sorted(escaped))


def unit_word(value: str) -> str:
    """One word of a unit file: quoted, with systemd's specifiers and variables made literal."""
    quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
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
