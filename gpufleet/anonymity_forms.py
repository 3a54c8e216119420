"""What tells one box, card, person or network from another by its form alone: how it is found in a text."""

from __future__ import annotations

import ipaddress
import re

# Who these are everybody has: they tell nobody, and a page without them cannot be read.
_COMMON = """
root gpufleet nobody ubuntu debian admin administrator user users host hosts box boxes gpu gpus node nodes
server servers model models main master test tests local localhost localdomain localhost6 ip6-localhost
ip6-loopback ip6-allnodes ip6-allrouters vllm lmdeploy ray cuda nvidia nvlink torch python python3 linux ssh
sshd systemd sudo service services system home work data cache api app web lan internal none null true false yes
and the for from with not all any worker workers engine enginecore apiserver rank process file error warning
info debug lib opt usr var run tmp etc dev proc sys srv mnt media boot kernel driver memory disk network release
runtime stack instance instances controller git name state status report plan facts finding findings journal log
logs
"""
COMMON = frozenset(_COMMON.split())
# Hosts that everybody may know: an address of theirs says what was fetched, and not by whom.
PUBLIC = (
    *("pytorch.org", "huggingface.co", "hf.co", "hf-mirror.com", "modelscope.cn"),
    *("nvidia.com", "nvidia.cn", "github.com", "githubusercontent.com", "debian.org", "ubuntu.com", "python.org"),
    *("vllm.ai", "kernel.org", "mozilla.org", "w3.org", "json-schema.org", "tsinghua.edu.cn", "ustc.edu.cn"),
    *("aliyun.com", "tencentyun.com", "readthedocs.io", "freedesktop.org", "pyinfra.com"),
)
_NAME = r"[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*"
_LABEL = r"[A-Za-z0-9][A-Za-z0-9-]*"
_HEX = "[0-9A-Fa-f]"
# Ends of names that no public server answers for, and those that networks at home and at work are given.
_INSIDE = (
    r"(?:local|lan|internal|intranet|intra|home|corp|private|localdomain|domain|home\.arpa|fritz\.box|ts\.net|tailnet)"
)
_UNIT = r"(?:service|socket|target|slice|scope|timer|mount|path|device)"

PEM = re.compile(r"-----BEGIN [A-Z0-9 ]+-----[\s\S]*?(?:-----END [A-Z0-9 ]+-----|\Z)")
SSH_KEY = re.compile(
    r"(?:(?:ssh-(?:rsa|dss|ed25519|ed448)|ecdsa-sha2-nistp\d+|sk-[a-z0-9-]+@openssh\.com)\s+)?"
    r"(?<![A-Za-z0-9+/])AAAA[A-Za-z0-9+/]{24,}={0,3}(?:[ \t]+[^\s\"'@]+@[^\s\"']+)?"
)
FINGERPRINT = re.compile(
    rf"SHA256:[A-Za-z0-9+/]{{20,}}=?|(?<![\w:])(?:MD5:)?(?:{_HEX}{{2}}:){{8,}}{_HEX}{{2}}(?![\w:])"
)
# What opens something, by its form: of hubs, clouds, forges, messengers; signed tokens (JWT); hashes of passwords.
TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"(?:hf_|api_org_|gh[pousr]_|github_pat_|glpat-|nvapi-|sk-|pk-|rk_|xox[abprs]-|npm_|pypi-|ms-|dapi|tskey-)"
    r"[A-Za-z0-9_-]{12,}"
    r"|A(?:KIA|SIA)[A-Z0-9]{12,}|AIza[A-Za-z0-9_-]{20,}|ya29\.[A-Za-z0-9_-]{10,}"
    r"|eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?"
    r"|\|1\|[A-Za-z0-9+/=]{20,}\|[A-Za-z0-9+/=]{20,}"
    r"|\$(?:[156]|2[aby]|y|7|gy|argon2(?:id|i|d))\$[./A-Za-z0-9$=,+-]{8,}"
    r")"
)
HEADER = re.compile(
    r"(?i)\b((?:proxy-)?authorization|cookie|set-cookie|x-[a-z-]*(?:key|token))([\"']?\s*[:=]\s*)([^\r\n]+)"
)
# `api_key: abc`, which has no quotes
NAMED = re.compile(
    r"(?i)(?<![\w-])((?:[a-z0-9]+[_-])*(?:(?:api|access|secret|private|auth|account|master)[_-]?key|token|secret|"
    r"[a-z0-9]*passw(?:or)?d|passphrase|credentials?))"
    r"([\"']?[ \t]*[:=][ \t]*[\"']?)([^\s\"',;<>{}\[\]()]{4,})"
)
QUERY = re.compile(r"(?<=\w)(://[^\s\"'<>?#]+)\?([^\s\"'<>]+)")
URL = re.compile(r"(?i)(?<=\w)://(?:<hidden>@|[^\s/@\"'<>]*@)?(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+)")
HUB = re.compile(
    r"(?i)((?:huggingface\.co|hf\.co|hf-mirror\.com|modelscope\.cn)/(?:api/)?(?:models/|datasets/|spaces/)?)([\w.-]+)(?=/[\w.-]+)"
)
GPU_UUID = re.compile(rf"\b(GPU|MIG)-({_HEX}{{4,8}}(?:-{_HEX}{{1,12}}){{0,4}})(?![\w-])")
UUID = re.compile(rf"(?<![0-9A-Za-z]){_HEX}{{8}}-(?:{_HEX}{{4}}-){{3}}{_HEX}{{12}}(?![0-9A-Za-z])")
MAC = re.compile(
    rf"(?<!{_HEX})(?:{_HEX}{{2}}:){{5,7}}{_HEX}{{2}}(?!{_HEX})|(?<![\w.-])(?:{_HEX}{{2}}-){{5}}{_HEX}{{2}}(?![\w-])"
    rf"|(?<![\w.])(?:{_HEX}{{4}}\.){{2}}{_HEX}{{4}}(?![\w.])"
)
NETWORK_CARD = re.compile(rf"\b(enx|wlx)({_HEX}{{12}})\b")
IPV4 = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?!\d|\.\d)")
# A run of what addresses are written with; `ipv6` tells whether there is one in it.
IPV6 = re.compile(
    r"(?<![0-9A-Fa-f:.])(?P<word>(?<=[A-Za-z_]))?(?P<run>[0-9A-Fa-f:.]++)(?P<zone>%[\w.-]+)?(?P<more>(?=[A-Za-z]))?"
)
EMAIL = re.compile(rf"(?<![\w.+-])[\w.+-]+@{_LABEL}(?:\.{_LABEL})*\.[A-Za-z]{{2,}}(?![\w-])")
LOGIN = re.compile(rf"(?<![\w@/.+-])({_NAME})@(?!v?\d)({_LABEL}(?:\.{_LABEL})*)(?!\.{_UNIT}\b)(?![\w@])")
UNIT_INSTANCE = re.compile(rf"\.{_UNIT}$")
HOME = re.compile(r"(/(?:home|Users|media|run/media)/)([^/\s\"':;,()<>\[\]{}=|&]+)")
INSIDE = re.compile(rf"(?i)(?<![\w.@/-])((?:{_LABEL}\.)+{_INSIDE})(?![\w-]|\.\w)")
SERIAL = re.compile(
    r"(?i)\b((?:serial(?:[ _-]?(?:number|num|no\.?))?|s/n|asset[ _-]?tag)[\"']?\s*[:=#]\s*[\"']?)"
    r"([A-Za-z0-9][A-Za-z0-9._-]{3,})"
)
DISK = re.compile(r"(/dev/disk/by-(?:id|uuid|partuuid|label|partlabel)/)([^\s\"',;)]+)")
HASH = re.compile(rf"(?<![0-9A-Za-z]){_HEX}{{32,128}}(?![0-9A-Za-z])")
OPAQUE = re.compile(r"(?<![A-Za-z0-9+=_.-])[A-Za-z0-9+=_-]{28,}(?![A-Za-z0-9+/=_-])")

# Who is there, by what a line says of him: of sshd, sudo, systemd, the hub's client, the environment.
SAID_USERS = (
    re.compile(rf"\b(?:Accepted|Failed) \w+(?:/\w+)? for (?:invalid user )?({_NAME})\b"),
    re.compile(
        rf"(?i)\b(?:session (?:opened|closed) for user|invalid user|logged in as|as user|by user)[ :]+[\"']?({_NAME})"
    ),
    re.compile(rf"\b(?:SUDO_USER|LOGNAME|USERNAME|USER|User)=[\"']?({_NAME})"),
    re.compile(rf"\bsudo(?:\[\d+\])?:\s+({_NAME}) :"),
    re.compile(rf"(?i)\b(?:user(?:_?name)?|login|owner|account)[\"']?\s*[:=]\s*[\"']({_NAME})[\"']"),
)
SAID_HOSTS = (
    re.compile(rf"\b(?:HOSTNAME|HOST)=[\"']?({_LABEL}(?:\.{_LABEL})*)"),
    re.compile(rf"(?i)\b(?:host_?name|fqdn|node_?name)[\"']?\s*[:=]\s*[\"']?({_LABEL}(?:\.{_LABEL})*)"),
)


# Owners of repositories on the hub that everybody may know.
_OWNERS = """
qwen meta-llama google mistralai deepseek-ai microsoft nvidia openai zai-org thudm internlm baichuan-inc 01-ai
unsloth bartowski thebloke quanttrio cyankiwi redhatai neuralmagic lmsys allenai tiiuae ibm-granite
"""
PUBLIC_OWNERS = frozenset(_OWNERS.split())
# Of an address: eight groups, or seven and a `::` at an end; without `::` six and four numbers.
MOST_GROUPS, FEWEST_COLONS = 9, 6
# After a name, what is an end of a file and no domain.
_ENDS = r"(?:json|jsonl|py|yaml|yml|txt|log|service|socket|timer|conf|env|gz|zip|tar|pyz|so|md|sock|pid|lock)"
DOMAIN = re.compile(rf"(?:\.(?!{_ENDS}\b)[A-Za-z0-9][A-Za-z0-9-]*)+")


def ipv6(run: str, in_word: bool = False, goes_on: bool = False) -> tuple[str, str, str] | None:
    """(what is before, an address, what is after) of a run of hexadecimal digits, colons and dots; None without one.

    + in_word: a letter stands before it, which the first group then belongs to: `aten::add`, `mac:fe80::1`
    + goes_on: a letter comes after it, which the last group then belongs to: `c10::Error`
    """
    groups = run.split(":")
    end = len(groups) - goes_on
    for first in range(in_word, end - 2):
        # the longest first; behind an address there may be a port, or the end of a sentence
        for last in range(min(end, first + MOST_GROUPS), first + 2, -1):
            text = ":".join(groups[first:last]).rstrip(".")
            bare = text if text.endswith("::") else text.rstrip(":")
            if ("::" in bare or bare.count(":") >= FEWEST_COLONS) and is_address(bare):
                before = "".join(f"{group}:" for group in groups[:first])
                return before, bare, run[len(before) + len(bare) :]
    return None


def is_public(host: str) -> bool:
    """Whether a host is one of those that everybody may know."""
    name = host.lower().rstrip(".")
    return any(name == known or name.endswith("." + known) for known in PUBLIC)


def address(text: str) -> str | None:
    """An IP address in its one spelling; None for what is none, and for one that every machine has."""
    try:
        found = ipaddress.ip_address(text.strip("[]").split("%")[0])
    except ValueError:
        return None
    return None if found.is_loopback or found.is_unspecified else found.compressed


def is_address(text: str) -> bool:
    """Whether it is an IP address at all."""
    try:
        ipaddress.ip_address(text.strip("[]").split("%")[0])
    except ValueError:
        return False
    return True


def is_opaque(word: str) -> bool:
    """Whether a long word looks made by chance: letters of both cases and digits, changing often.

    Names of classes, kernels and files are not: they are made of words. Nor are C++'s own (`_ZN2at6native…`).
    """
    if word.startswith("_Z") or not re.search("[a-z]", word) or not re.search("[A-Z]", word):
        return False
    digits = sum(letter.isdigit() for letter in word)
    changes = len(re.findall(r"(?<=\d)(?=[A-Za-z])|(?<=[A-Za-z])(?=\d)", word))
    return digits >= 4 and changes >= 6
