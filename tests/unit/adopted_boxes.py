"""Boxes that serve by hand, made of a few files: processes, units, environments and checkpoints of their owners.

The three of recipes.md are written as their owners would: a unit each, flags and variables as the recipes have them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from gpufleet import catalogue, paths, scenario
from gpufleet.fleet import Fleet
from gpufleet.models import Model
from gpufleet.plan import Box
from gpufleet.schema import read
from gpufleet.settings import Settings
from hostkit import adoptable
from hostkit.roots import Roots
from tests.unit import checkpoints
from tests.unit.fleets import product_stacks

TOPOLOGIES = Path(__file__).resolve().parents[2] / "lab" / "topologies"
HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
ROW = "   0: 00000000:{port:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0  0 {inode} 1 0\n"
PASSWD = "root:x:0:0:root:/root:/bin/bash\nai:x:1000:1000:AI:/home/ai:/bin/bash\n"


@dataclass
class HandMade:
    """A box below `root`; what is put on it is what its probe finds."""

    root: Path
    shown: list[str] = field(default_factory=list)
    sockets: list[str] = field(default_factory=list)

    def write(self, path: str, text: str) -> Path:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def process(
        self,
        pid: int,
        words: Sequence[str],
        env: Mapping[str, str] | None = None,
        cgroup: str = "/user.slice/user-1000.slice/session-3.scope",
        ports: Sequence[int] = (),
        parent: int = 1,
        uid: int = 1000,
        cwd: str = "/home/ai",
    ) -> None:
        """A process as /proc tells of it."""
        at = f"/proc/{pid}"
        self.write(f"{at}/cmdline", "".join(f"{word}\0" for word in words))
        self.write(f"{at}/environ", "".join(f"{key}={value}\0" for key, value in (env or {}).items()))
        self.write(f"{at}/stat", f"{pid} (python3 (x)) S {parent} {pid} {pid} 0 -1")
        self.write(f"{at}/status", f"Name:\tpython3\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
        self.write(f"{at}/cgroup", f"0::{cgroup}\n")
        self.write(f"{at}/comm", "vllm\n")
        self.write("/etc/passwd", PASSWD)
        (self.root / f"proc/{pid}/cwd").symlink_to(cwd)
        folder = self.root / f"proc/{pid}/fd"
        folder.mkdir()
        for number, port in enumerate(ports, 7):
            inode = 5000 + len(self.sockets)
            (folder / str(number)).symlink_to(f"socket:[{inode}]")
            self.sockets.append(ROW.format(port=port, inode=inode))
        self.write("/proc/net/tcp", HEADER + "".join(self.sockets))

    def unit(self, name: str, text: str, enabled: str = "enabled", active: str = "active") -> None:
        """A unit of the system that systemd knows."""
        path = f"/etc/systemd/system/{name}"
        self.write(path, text)
        lines = [f"Id={name}", f"ActiveState={active}", f"UnitFileState={enabled}", f"FragmentPath={path}"]
        self.shown.append("\n".join([*lines, "DropInPaths="]))

    def runtime(self, prefix: str, **versions: str) -> None:
        """A virtual environment with packages of these versions."""
        for name, version in versions.items():
            self.write(f"{prefix}/lib/python3.12/site-packages/{name}-{version}.dist-info/METADATA", "")

    def checkpoint(self, path: str, config: Mapping[str, Any], headers: Mapping[str, Any]) -> None:
        """A model in a folder, its weights one file with a hole in it."""
        folder = self.root / path.lstrip("/")
        folder.mkdir(parents=True)
        self.write(f"{path}/config.json", json.dumps(config))
        checkpoints.write(folder / "model.safetensors", dict(headers))
        for place in (folder, *folder.parents):  # as an owner has it who lets others read
            if place != self.root and self.root in place.parents:
                place.chmod(0o755)

    @property
    def roots(self) -> Roots:
        return Roots(str(self.root), {"systemctl": "\n\n".join(self.shown)})

    def look(self) -> dict[str, Any]:
        """What the kit tells of it, as it comes to the controller."""
        found: dict[str, Any] = json.loads(json.dumps(adoptable.run({}, self.roots)))
        return found


def fleet(tmp: Path, name: str, **data: Any) -> Fleet:
    """A fleet of one box, with the product's catalogues."""
    settings = read(Settings, data, "a test").model_dump(exclude_unset=True)
    models = catalogue.load(Model, "model", paths.model_folders())
    box = Box(name, settings, ("fleet", "home"), f"inventory/home.py: box {name}")
    return Fleet(tmp, tmp / "inventory/home.py", {name: box}, {name: {}}, {}, product_stacks(), models)


def facts(topology: str) -> dict[str, Any]:
    return scenario.load(TOPOLOGIES / f"{topology}.json") | {"cpu": {"cores": 8, "threads": 16}}


@cache
def qwen_awq() -> tuple[dict[str, Any], dict[str, Any]]:
    config = checkpoints.config("qwen3.6-27b") | {"quantization_config": {"quant_method": "awq", "bits": 4}}
    return config, checkpoints.qwen(config, checkpoints.awq, draft=checkpoints.plain)


@cache
def qwen_fp8() -> tuple[dict[str, Any], dict[str, Any]]:
    config = checkpoints.config("qwen3.6-27b-fp8")
    return config, checkpoints.qwen(config, checkpoints.fp8_blocks, draft=checkpoints.fp8_blocks)


UNIT = """[Unit]
Description=vLLM
After=network-online.target
Wants=network-online.target

[Service]
User=ai
WorkingDirectory=/home/ai
{more}
ExecStart={command}
Restart=always
RestartSec=10
TimeoutStartSec=900
StandardOutput=append:/var/log/vllm.log
StandardError=append:/var/log/vllm.log

[Install]
WantedBy=multi-user.target
"""
SYSTEMD = {
    "LANG": "en_US.UTF-8", "USER": "ai", "LOGNAME": "ai", "HOME": "/home/ai", "SHELL": "/bin/bash",
    "INVOCATION_ID": "0123", "JOURNAL_STREAM": "8:1", "SYSTEMD_EXEC_PID": "812",
}  # fmt: skip
CUDA = {
    "CUDA_HOME": "/usr/local/cuda-{}",
    "PATH": "/usr/local/cuda-{}/bin:/opt/vllm/bin:/usr/bin:/bin",
    "LD_LIBRARY_PATH": "/usr/local/cuda-{}/lib64",
}


def cuda(version: str) -> dict[str, str]:
    return {key: value.format(version) for key, value in CUDA.items()}


A1_FLAGS = [
    *("--port", "3001", "--served-model-name", "medium", "--dtype", "half", "--tensor-parallel-size", "2"),
    *("--device-ids", "0,1", "--kv-cache-dtype", "fp8_e4m3", "--max-model-len", "200000", "--max-num-seqs", "3"),
    *("--max-num-batched-tokens", "4096", "--enable-prefix-caching", "--enable-chunked-prefill"),
    *("--no-async-scheduling", "--language-model-only", "--skip-mm-profiling", "--reasoning-parser", "qwen3"),
    *("--enable-auto-tool-choice", "--tool-call-parser", "qwen3_coder", "--gpu-memory-utilization", "0.92"),
    *("--additional-config", '{"gdn_prefill_backend":"flashqla_legacy"}'),
    "--speculative-config",
    '{"method":"mtp","num_speculative_tokens":3,"draft_sample_method":"probabilistic"}',
    "--compilation-config",
    '{"cudagraph_capture_sizes":[4,8,12],"max_cudagraph_capture_size":12}',
    *("--host", "0.0.0.0"),
]
A1_ENV = {
    **cuda("13.0"),
    "TORCH_CUDA_ARCH_LIST": "7.5",
    "VLLM_USE_DEEP_GEMM": "0",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_QWOPUS_MTP_BF16_DRAFT": "1",
    "VLLM_SM75_SPEC_SYNC_MODE": "safe",
    "VLLM_USE_V2_MODEL_RUNNER": "1",
    "PYTHONPATH": "/home/ai/FlashQLA-SM70-SM75",
}
B_FLAGS = [
    *("--host", "0.0.0.0", "--port", "8000", "--served-model-name", "qwen-local", "--dtype", "half", "-tp", "2"),
    *("--device-ids", "0,1", "--quantization", "fp8", "--kv-cache-dtype", "fp8_e4m3", "--max-model-len", "100000"),
    *("--enable-prefix-caching", "--max-num-seqs", "1", "--max-num-batched-tokens", "4096"),
    *("--enable-chunked-prefill", "--no-async-scheduling", "--skip-mm-profiling", "--reasoning-parser=qwen3"),
    "--reasoning-config",
    '{"reasoning_start_str":"<think>","reasoning_end_str":"</think>","default_thinking_token_budget":4000}',
    *("--default-chat-template-kwargs", '{"enable_thinking": true}', "--enable-auto-tool-choice"),
    *("--tool-call-parser", "qwen3_coder", "--chat-template-content-format", "string"),
    *("--gpu-memory-utilization", "0.92", "--gdn-prefill-backend", "flashqla_legacy"),
    *("--speculative-config.method", "mtp", "--speculative-config.num_speculative_tokens", "3"),
    "--compilation-config",
    '{"cudagraph_mode":"PIECEWISE","cudagraph_capture_sizes":[4],"max_cudagraph_capture_size":4}',
    "--override-generation-config",
    '{"temperature":0.6,"top_p":0.95,"top_k":20,"min_p":0,"presence_penalty":0,"repetition_penalty":1.06}',
    *("--cpu-offload-gb", "0", "--disable-uvicorn-access-log"),
]
B_ENV = {
    "CUDA_HOME": "/usr/local/cuda-12.9",
    "PATH": "/usr/local/cuda-12.9/bin:/opt/vllm/bin:/usr/bin:/bin",
    "LD_LIBRARY_PATH": "/usr/local/cuda-12.9/lib64:/usr/local/cuda-12.9/lib64/stubs",
    "PYTHONPATH": "/home/ai/FlashQLA-SM70-SM75",
    "HF_ENDPOINT": "https://hub.example.org",
    "VLLM_USE_DEEP_GEMM": "0",
    "OMP_NUM_THREADS": "8",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_QWOPUS_MTP_BF16_DRAFT": "1",
    "VLLM_SM75_SPEC_SYNC_MODE": "safe",
}
C_FLAGS = [
    *("--served-model-name", "shawnw3i", "--host", "0.0.0.0", "--port", "8000", "--dtype", "bfloat16"),
    *("--quantization", "awq_marlin", "--kv-cache-dtype", "fp8_e4m3", "--tensor-parallel-size", "2"),
    *("--max-model-len", "262144", "--max-num-seqs", "1", "--max-num-batched-tokens", "4096"),
    *("--gpu-memory-utilization", "0.95", "--enable-chunked-prefill", "--block-size", "16"),
    *("--enable-prefix-caching", "--disable-custom-all-reduce", "--scheduling-policy", "priority"),
    *("--speculative-config", '{"method":"qwen3_5_mtp","num_speculative_tokens":3}', "--reasoning-parser", "qwen3"),
    *("--tool-call-parser", "qwen3_xml"),
    *("--default-chat-template-kwargs", '{"enable_thinking": true, "preserve_thinking": true}'),
]
C_ENV = {
    "VLLM_USE_FLASHINFER_SAMPLER": "1",
    "FLASHINFER_DISABLE_VERSION_CHECK": "1",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "VLLM_TORCH_COMPILE_LEVEL": "0",
    "PATH": "/opt/vllm/bin:/usr/bin:/bin",
}
# By box: topology, folder of the model, its files, what starts it, flags, variables, version, a line of the unit
BOXES: dict[str, tuple[str, str, Callable[[], Any], list[str], list[str], dict[str, str], str, str]] = {
    "A1": (
        *("dual-2080ti-nv2", "/home/ai/models/Qwen3.8-27B-AWQ", qwen_awq),
        *(["/opt/vllm/bin/python", "/opt/vllm/bin/vllm", "serve"], A1_FLAGS, A1_ENV, "0.27.1", ""),
    ),
    "B": (
        *("dual-2080ti-nv2", "/data/Qwen3.6-27B-DSV4Pro-Thinking-Distill-FP8", qwen_fp8),
        *(["/opt/vllm/bin/python", "/opt/vllm/bin/vllm", "serve"], B_FLAGS, B_ENV, "0.24.0"),
        "ExecStartPre=/home/ai/check_flashinfer.sh",
    ),
    "C": (
        *("dual-3090-nv4", "/home/ai/models/Qwen3.8-27B-AWQ-MTP", qwen_awq),
        *(["/opt/vllm/bin/python", "-m", "vllm.entrypoints.openai.api_server", "--model"], C_FLAGS, C_ENV, "0.27.1"),
        "",
    ),
}


def by_hand(root: Path, name: str) -> HandMade:
    """One of the boxes of the recipes, with its service as it runs."""
    _, folder, files, start, flags, env, version, more = BOXES[name]
    box = HandMade(root)
    words = [*start, folder, *flags]
    box.unit("vllm.service", UNIT.format(command=" ".join(words), more=more))
    port = int(flags[flags.index("--port") + 1])
    cgroup = "/system.slice/vllm.service"
    box.process(812, words, {**SYSTEMD, **env}, cgroup, [port])
    box.process(900, ["VLLM::EngineCore"], cgroup=cgroup, parent=812)
    box.runtime("/opt/vllm", vllm=version, torch="2.13.0+cu130")
    config, headers = files()
    box.checkpoint(folder, config, headers)
    return box
