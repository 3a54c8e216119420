"""The local lab (`make lab`): real boxes on this machine, which get everything from it and nothing from outside."""

import sys
from pathlib import Path

from gpufleet.inventory import by_traits
from lab import state
from lab.errors import LabError

try:
    _lab = state.load()
except LabError as error:
    print("gpufleet:", ". ".join(line.strip() for line in str(error).splitlines()), file=sys.stderr)
    raise SystemExit(2) from None
_mirrors = {
    "pypi": _lab.urls["pypi"],
    "torch": _lab.urls["pypi"],
    "cuda": _lab.urls["cuda"],
    "cuda_key": _lab.urls["cuda_key"],
    "cuda_key_fingerprint": _lab.cuda_key_fingerprint,
}

boxes = [
    (
        box.name,
        {
            "ssh_hostname": box.address,
            "ssh_user": "root",
            "ssh_key": _lab.ssh_key,
            "ssh_known_hosts_file": _lab.known_hosts,
            "mirrors": _mirrors,
            "stack": "vllm-0.27.1-cpu",
            "serve": [_lab.model["name"]],
        },
    )
    for box in _lab.boxes
]

globals().update(by_traits(boxes, models=[Path(_lab.model["catalogue"]).parent]))
