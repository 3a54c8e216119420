"""A new runtime is tried as its services will run it: by their user, in their environment and confinement, from `/`."""

from __future__ import annotations

import json
import os
import pkgutil
import re

from hostkit import events, files, release, steps
from hostkit.errors import Failure
from hostkit.verify_program import MARK

SECONDS = 900
CGROUP = "/proc/self/cgroup"
CACHE = "gpufleet/verify"  # where the services' caches are, for what is compiled at first use
SCRATCH = "/var/cache/" + CACHE
# Those of the services' unit (files/templates/instance.service.j2) that could keep a runtime from working.
CONFINED = (
    "NoNewPrivileges=yes",
    "ProtectSystem=strict",
    "ProtectHome=yes",
    "PrivateTmp=yes",
    "ProtectKernelTunables=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelLogs=yes",
    "ProtectControlGroups=yes",
    "RestrictSUIDSGID=yes",
    "RestrictRealtime=yes",
    "LockPersonality=yes",
    "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK",
    "LimitMEMLOCK=infinity",
    "UMask=0077",
)
CRASHED = "see the lines above it in `journalctl` and the kernel log; report it with them"


def run(spec: dict, directory: str, tree: str, work: str) -> dict:
    """Verify the runtime that is made in `tree` and will be `directory`; returns what was found, for its mark.

    + spec: versions, archs, torch_cuda, gpus, toolkit, verify, env as of hostkit.runtime
    + work: a directory of this attempt
    Raises Failure with the first cause and its remedy; the others are told before.
    """
    release.ensure_user()
    events.log("verifying {}".format(spec["name"]))
    with_torch = "torch" in spec["versions"]  # what cards are asked with
    asked = {
        "versions": spec["versions"],
        "archs": spec["archs"] if with_torch else [],
        "cuda": spec.get("torch_cuda") if with_torch else None,
        "gpus": spec.get("gpus", 0) if with_torch else 0,
        "toolkit": spec["toolkit"],
        "lines": spec["verify"],
    }
    question, variables = os.path.join(work, "verify.json"), os.path.join(work, "verify.env")
    files.write(question, json.dumps(asked).encode())
    env = {key: str(value).replace(directory, tree) for key, value in spec["env"].items()}
    files.write(variables, environment_file(env).encode(), 0o600)
    files.remove(SCRATCH)
    try:
        lines, status = steps.follow(command(tree, question, variables), {}, MARK)
    finally:
        files.remove(SCRATCH)
    answers = [line for line in lines if line.startswith(MARK)]
    if not answers:
        said = "; ".join(lines[-steps.SHOWN :]) or "it said nothing"
        raise Failure("verifying {} ended with status {}: {}".format(spec["name"], status, said), CRASHED)
    found = dict(json.loads(answers[-1][len(MARK) :]))
    failures = found.pop("failures")
    for failure in failures[1:]:
        events.log("also wrong: {}. {}".format(failure["cause"], failure["remedy"]))
    if failures:
        raise Failure("{} fails its verification: {}".format(spec["name"], failures[0]["cause"]), failures[0]["remedy"])
    return found


def command(tree: str, question: str, variables: str) -> list:
    """systemd-run with the program as text: the services' user may not read all that root may."""
    program = pkgutil.get_data("hostkit", "verify_program.py")
    assert program is not None
    properties = [*CONFINED, "EnvironmentFile=" + variables, "RuntimeMaxSec={}".format(SECONDS)]
    properties += ["CacheDirectory=" + CACHE]
    # It is no child of the job: with this it ends when the job is killed, and does not hold the cards against the next.
    properties += ["BindsTo=" + unit for unit in job_of(CGROUP)]
    options = ["--quiet", "--wait", "--pipe", "--collect", "--service-type=exec", "--working-directory=/",
               "--uid=" + files.USER, "--gid=" + files.USER]  # fmt: skip
    options += ["--property=" + item for item in properties]
    python = os.path.join(tree, "bin", "python")
    # One that crashes has no answer: then at least the lines it was in are said.
    return ["systemd-run", *options, "--", python, "-X", "faulthandler", "-c", program.decode("utf-8"), question]


def job_of(cgroup: str) -> list:
    """The job's unit that this process runs in, by its /proc/…/cgroup; none outside of one."""
    try:
        with open(cgroup, encoding="utf-8") as handle:
            return re.findall(r"gpufleet-job-[0-9a-f]+\.service", handle.read())[:1]
    except OSError:
        return []


def environment_file(env: dict) -> str:
    """systemd's EnvironmentFile, values in double quotes."""
    quoted = {key: value.replace("\\", "\\\\").replace('"', '\\"') for key, value in env.items()}
    return "".join('{}="{}"\n'.format(key, quoted[key]) for key in sorted(quoted))
