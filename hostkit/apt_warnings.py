"""What `apt-get update` says, taken seriously: with old lists and a wrong key it only warns, and ends with 0.

Every `W:` and `E:` is a failure, with two exceptions: those of `HARMLESS`, and those of a repository that nothing to be
installed comes from. The second is known only after the simulation, so such a problem is kept until then.
"""

from __future__ import annotations

import re
from typing import List, NamedTuple, Optional, Sequence

from hostkit import apt_sources, events
from hostkit.errors import Failure

# What apt warns of on many a box in order, each with why it costs nothing here.
HARMLESS = [
    # the same index in two files: read once
    r"is configured multiple times in",
    # the signature was checked and is good; apt would rather have the key in another file
    r"Key is stored in legacy trusted\.gpg keyring",
    # the signature is good today; a later apt will not take this kind of key
    r"^(?!.*(?:GPG error|invalid)).*(?:uses weak algorithm|Policy will reject signature)",
    # the source says `stable`, the repository calls itself `bookworm`: signed, and read all the same
    r"Conflicting distribution:",
    # a component or architecture that the repository lacks; a package missed for it is named by the install
    r"^Skipping acquire of configured file",
    # a key in a file that apt cannot read; a repository that needs it has its own error
    r"The key\(s\) in the keyring \S+ are ignored",
    # apt fetches as root where its own user may not write
    r"Download is performed unsandboxed as root",
    # a strange line in some package's description
    r"Ignoring Provides line",
    # two repositories with different packages of one number: where it is a toolkit's, it is refused by its origin
    r"Sources disagree on hashes",
]
# Said as a warning, with no error after it, only of a source that its owner marked `trusted` or `allow-insecure`.
# Never accepted of NVIDIA's. With old lists and a wrong key it begins "An error occurred during the signature".
OWNERS_CHOICE = r"^The repository '.*' (?:is not signed|does not have a Release file)\.$|^GPG error: "
# Said after the warnings that have the reason.
SUMMARY = r"^Some index files failed to download"
# The system's own: a box whose security updates cannot be read is not in order, whatever is installed.
DISTRIBUTION = re.compile(r"(^|\.)(debian\.org|ubuntu\.com)$")
_LINE = re.compile(r"^([WE]): (.+)$", re.MULTILINE)
_URL = re.compile(r"\b(?:https?|ftp|file|copy|cdrom|mirror\+\w+|tor\+https?):/[^\s',]+")


class Problem(NamedTuple):
    """One line of apt's, and the repository that it is about."""

    text: str
    repository: Optional[str]


def problems(output: str, cuda: Optional[str]) -> List[Problem]:
    """What is wrong by the output of `apt-get update`.

    + cuda: the address of the CUDA repository, of which nothing is forgiven
    """
    said = [(level, Problem(text, _repository(text))) for level, text in re.findall(_LINE, output)]
    errors = {item.repository for level, item in said if level == "E"}
    found = []
    for level, item in said:
        url = item.repository
        chosen = url is not None and url not in errors and not (cuda and _inside(url, cuda))
        forgiven = any(re.search(pattern, item.text) for pattern in HARMLESS + [OWNERS_CHOICE] * chosen)
        if level == "E" or not forgiven:
            found.append(item)
    # Beside an error of one repository apt leaves out its warnings of others; they are in the progress only.
    for url, text in re.findall(r"^Err:\d+ (\S+) .*\n {2}(.+)$", output, re.MULTILINE):
        found.append(Problem(text.strip(), _repository(url)))
    reasons = [item for item in found if not re.search(SUMMARY, item.text)] or found
    first = {item.repository or item.text: item for item in reversed(reasons)}
    return [item for item in reasons if first[item.repository or item.text] is item]


def refuse(found: Sequence[Problem], cuda: Optional[str]) -> List[Problem]:
    """Raise Failure for what cannot be lived with; the rest is about repositories that may not be needed."""
    for problem in found:
        url = problem.repository
        if url is None or (cuda and _inside(url, cuda)) or DISTRIBUTION.search(apt_sources.host(url)):
            raise failure(problem, cuda)
    return list(found)


def refuse_needed(later: Sequence[Problem], addresses: Sequence[str], cuda: Optional[str]) -> None:
    """The same once it is known which addresses have the packages to be installed, in any version."""
    hosts = {apt_sources.host(address) for address in addresses} - {""}
    for problem in later:
        url = problem.repository or ""
        if apt_sources.host(url) in hosts or any(_inside(url, address) for address in addresses):
            raise failure(problem, cuda)
        events.log("apt-get update: {}; nothing to be installed comes from there".format(problem.text))


def failure(problem: Problem, cuda: Optional[str] = None) -> Failure:
    """The problem as a cause that names the repository, and what to do about it."""
    if problem.repository is None:
        return Failure("apt-get update warns: " + problem.text, "run apt-get update on the box and mend what it says")
    places = ", ".join(apt_sources.files_with(problem.repository)) or "/etc/apt"
    cause = "apt-get update does not get the lists of {}: {}".format(problem.repository, problem.text)
    signed = re.search(r"NO_PUBKEY|GPG error|signature|not signed|EXPKEYSIG|REVKEYSIG", problem.text)
    if cuda and _inside(problem.repository, cuda):
        remedy = "check mirrors.cuda_key and mirrors.cuda_key_fingerprint" if signed else "check mirrors.cuda"
        return Failure(cause, "{}, and the source in {}".format(remedy, places))
    if "changed its" in problem.text:
        remedy = "look whether that is right, and accept it: apt-get update --allow-releaseinfo-change"
    elif signed:
        remedy = "put that repository's present key in place"
    else:
        remedy = "see that the box reaches it"
    return Failure(cause, "{}; or take the repository out of {}".format(remedy, places))


def _repository(text: str) -> Optional[str]:
    """`http://host/debian` of whatever apt says of one of its files."""
    found = _URL.search(text)
    if not found:
        return None
    url = found.group(0).rstrip(":.")
    url = re.sub(r"/dists/.*$", "", url)
    return re.sub(r"(/\.)?/(InRelease|Release|Release\.gpg|Packages\S*|Sources\S*)$", "", url).rstrip("/")


def _inside(url: str, repository: str) -> bool:
    return (apt_sources.bare(url) + "/").startswith(apt_sources.bare(repository) + "/")
