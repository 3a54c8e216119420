"""An example fleet, made to be edited: names, addresses, and what each box serves. Nothing else is needed.

Everything about a box that can be found out is found out. What you want otherwise goes into group_data/, by trait
(sm75.py, nvlink.py, sm75_pcie.py …) or by a group of your own, such as `kitchen` below (group_data/kitchen.py).
"""

from gpufleet.inventory import by_traits

boxes = [
    # ssh_hostname and the other ssh_… keys are pyinfra's; your ~/.ssh/config is honoured too.
    # The stack goes with the cards; those for GPUs have not run on such cards yet, so here is the one for CPUs.
    (
        "turing-1",
        {"ssh_hostname": "192.168.1.11", "ssh_user": "me", "stack": "vllm-0.27.1-cpu", "serve": ["qwen3-0.6b"]},
    ),
    # A serve entry can say more: another port, flags and variables of the engine for this box only.
    (
        "ampere-1",
        {
            "ssh_hostname": "192.168.1.12",
            "ssh_user": "root",
            "expect": {"gpus": 2, "nvlink": 4},
            "stack": "vllm-0.27.1-cpu",
            "serve": [{"model": "qwen3-0.6b", "port": 8080, "args": {"max-model-len": 8192}}],
        },
    ),
]

kitchen = ["turing-1"]

globals().update(by_traits(boxes))
