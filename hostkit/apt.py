"""Packages by apt: NVIDIA's repository with its key checked, and nothing that would touch the driver."""

from __future__ import annotations

import glob
import os
import re
import time

from hostkit import events, files, openpgp, shell
from hostkit.errors import Failure
from hostkit.fetch import fetch_bytes

KEYRINGS = "/etc/apt/keyrings"
SOURCES = "/etc/apt/sources.list.d"
LOCK_SECONDS = 300
APT = [
    "apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout={}".format(LOCK_SECONDS), "-o", "Acquire::Retries=3",
    "-o", "Dpkg::Use-Pty=0", "-o", "APT::Install-Recommends=false",
    # Else a g++ that apt does not know is a pattern: everything with a g in its name would be installed.
    "-o", "APT::Cmd::Pattern-Only=true",
]  # fmt: skip
QUIET = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1"}
DRIVER = re.compile(
    r"^(nvidia-(driver|dkms|kernel|open|headless|firmware)|libnvidia-|cuda-drivers|xserver-xorg-video-nvidia)"
)

# What apt says, and what that means for the owner.
KNOWN = [
    # the second is said of a name that other packages mention
    (r"(?:Unable to locate package |Package (?=\S+ has no installation candidate))'?([^\s']+)",
     "apt knows no package {0}",
     "check the box's apt sources (apt-get update, apt-cache policy) and the mirrors setting"),
    (r"dpkg frontend lock (?:was|is) locked by another process(?: with pid (\d+))?",
     "another program holds dpkg's lock (pid {0})", "wait for it (often unattended-upgrades) and deploy again"),
    (r"Could not get lock (\S+)", "another program holds apt's lock {0}",
     "wait for it (often unattended-upgrades) and deploy again"),
    (r"No space left on device", "the disk is full", "free space on the box (df -h), then deploy again"),
    (r"NO_PUBKEY (\S+)", "apt does not trust a repository: key {0} is missing",
     "install that repository's key or remove the repository from /etc/apt"),
    (r"(?:Temporary failure resolving|Could not resolve) '?([^\s']+)", "the box cannot resolve {0}",
     "give the box a working name server, or set mirrors to something it reaches"),
    (r"(?:Could not connect to|Unable to connect to|Cannot initiate the connection to) (\S+)",
     "the box cannot reach {0}", "check the box's network, or set mirrors to something it reaches"),
    (r"Packages need to be removed but remove is disabled", "apt would have to remove packages",
     "look at `apt-get -s install` on the box; hold or remove what conflicts by hand"),
]  # fmt: skip


def run(spec: dict) -> dict:
    """Install `packages`, after adding `repository` {name, url, key_url, fingerprint} when given.

    Raises Failure when the key is another than the pinned one, when a package is not to be had, or when apt would
    remove packages or change the NVIDIA driver.
    """
    repository = spec.get("repository")
    if repository:
        add_repository(repository)
    packages = spec["packages"]
    if not packages:
        return {"installed": []}
    # A box that lost power while dpkg worked: finish that first.
    apt(["dpkg", "--configure", "-a"])
    events.log("apt-get update")
    apt(APT + ["update"])
    refuse_driver_changes(apt(APT + ["--simulate", "--no-remove", "install", "--"] + packages))
    events.log("apt-get install " + " ".join(packages))
    apt(APT + ["--no-remove", "install", "--"] + packages)
    return {"installed": packages}


def add_repository(repository: dict) -> None:
    """Write the key and the source, unless some source of the box already has this address."""
    url = repository["url"]
    if already_configured(url):
        return
    key = fetch_bytes(repository["key_url"], 1 << 20)
    found = openpgp.fingerprints(key)
    wanted = repository["fingerprint"].replace(" ", "").upper()
    if found != {wanted}:
        raise Failure(
            "the key at {} is {}, not the pinned {}".format(
                repository["key_url"], ", ".join(sorted(found)) or "no OpenPGP key", wanted
            ),
            "do not trust it; check mirrors.cuda_key and mirrors.cuda_key_fingerprint against NVIDIA's own page",
        )
    keyring = os.path.join(KEYRINGS, repository["name"] + ".asc")
    files.write(keyring, key)
    source = "Types: deb\nURIs: {}\nSuites: /\nSigned-By: {}\n".format(url, keyring)
    files.write(os.path.join(SOURCES, repository["name"] + ".sources"), source.encode())


def already_configured(url: str) -> bool:
    """Whether an apt source names this address (two entries with unlike Signed-By make apt refuse both)."""
    for path in ["/etc/apt/sources.list"] + glob.glob(SOURCES + "/*.list") + glob.glob(SOURCES + "/*.sources"):
        try:
            with open(path, encoding="utf-8", errors="replace") as handle:
                lines = [line for line in handle if not line.lstrip().startswith("#")]
        except OSError:
            continue
        if any(url.rstrip("/") in line for line in lines):
            return True
    return False


def refuse_driver_changes(simulation: str) -> None:
    """Raise Failure when the simulated install touches the driver: that is the owner's to decide."""
    touched = [
        line.split()[1]
        for line in simulation.splitlines()
        if line.startswith(("Inst ", "Remv ")) and DRIVER.match(line.split()[1])
    ]
    if touched:
        raise Failure(
            "apt would change the NVIDIA driver ({})".format(", ".join(sorted(touched))),
            "install the toolkit package alone, never `cuda`; look at `apt-get -s install` on the box",
        )


def apt(arguments: list) -> str:
    """Run apt or dpkg; what it is known to say becomes a cause and a remedy."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return shell.run(arguments, env=QUIET)
        except shell.Ended as ended:
            # dpkg does not wait for its lock as apt-get does; unattended-upgrades holds it on many a fresh box.
            if "frontend lock" not in ended.output or time.monotonic() > deadline:
                raise explain(ended, arguments)
        time.sleep(3)


def explain(ended: shell.Ended, arguments: list) -> Failure:
    """What a failed `arguments` said, as a cause and a remedy."""
    for pattern, cause, remedy in KNOWN:
        # All that lack are named at once: one after the other would cost the owner a deploy each.
        found = list(dict.fromkeys(re.findall(pattern, ended.output)))
        # apt takes the last + of a name for its own sign, and complains of a "g+".
        found = [name + "+" if name not in arguments and name + "+" in arguments else name for name in found]
        if found:
            return Failure(cause.format(", ".join(found)), remedy.format(", ".join(found)))
    last = ended.tail.strip().splitlines()[-1:] or ["no output"]
    return Failure("apt failed: {}".format(last[0]), "run the same apt-get on the box and mend what it says")
