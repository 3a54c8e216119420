"""apt and dpkg as they are called here, and what they are known to say as a cause and a remedy."""

from __future__ import annotations

import re
import time

from hostkit import shell
from hostkit.errors import Failure

LOCK_SECONDS = 300
APT = [
    "apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout={}".format(LOCK_SECONDS), "-o", "Acquire::Retries=3",
    "-o", "Dpkg::Use-Pty=0", "-o", "APT::Install-Recommends=false",
    # Else a g++ that apt does not know is a pattern: everything with a g in its name would be installed.
    "-o", "APT::Cmd::Pattern-Only=true",
]  # fmt: skip
QUIET = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1"}

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
    (r"(?m)^ +(\S+ : (?:Pre)?Depends: .+)$", "apt cannot have {0}",
     "look for packages on hold (apt-mark showhold) and at the apt sources of the box, then deploy again"),
    (r"E: ((?:Malformed|Conflicting values) [^\n]+)", "apt cannot read its sources: {0}",
     "mend the file it names, then deploy again"),
    (r"Held packages were changed", "a package that is on hold would be changed",
     "apt-mark showhold says which; apt-mark unhold it, or install by hand"),
]  # fmt: skip


def apt(arguments: list) -> str:
    """Run apt or dpkg; what it is known to say becomes a cause and a remedy."""
    try:
        return attempt(arguments)
    except shell.Ended as ended:
        raise explain(ended, arguments)


def attempt(arguments: list) -> str:
    """Run apt or dpkg, waiting for dpkg's lock. Raises shell.Ended."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return shell.run(arguments, env=QUIET)
        except shell.Ended as ended:
            # dpkg does not wait for its lock as apt-get does; unattended-upgrades holds it on many a fresh box.
            if "frontend lock" not in ended.output or time.monotonic() > deadline:
                raise
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
