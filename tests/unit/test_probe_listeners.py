"""Who holds a port: sockets of /proc/net, their owners by descriptor, the unit by cgroup."""

from __future__ import annotations

from pathlib import Path

import pytest

from hostkit import listeners
from hostkit.roots import Roots

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
ROW = "   0: {address}:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  0  0 {inode} 1 0\n"
V2 = "0::/system.slice/gpufleet-qwen.service\n"
V1 = "5:devices:/system.slice/other.service\n1:name=systemd:/system.slice/gpufleet-qwen.service\n0::/\n"
USER = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/ollama.service\n"
SESSION = "0::/user.slice/user-0.slice/session-3.scope\n"


def row(port: int, inode: int, state: str = "0A", address: str = "00000000") -> str:
    return ROW.format(port=port, inode=inode, state=state, address=address)


def box(tmp_path: Path, tcp: str, tcp6: str = "", cgroup: str = V2, comm: str = "vllm", cmdline: str = "") -> Roots:
    net = tmp_path / "proc/net"
    net.mkdir(parents=True)
    (net / "tcp").write_text(HEADER + tcp)
    (net / "tcp6").write_text(HEADER + tcp6)
    process = tmp_path / "proc/321"
    (process / "fd").mkdir(parents=True)
    (process / "fd/7").symlink_to("socket:[5001]")
    (process / "fd/8").symlink_to("/dev/null")
    (process / "comm").write_text(comm + "\n")
    (process / "cmdline").write_text(cmdline)
    (process / "cgroup").write_text(cgroup)
    return Roots(str(tmp_path))


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        (V2, "gpufleet-qwen.service"),
        (V1, "gpufleet-qwen.service"),
        (USER, "ollama.service"),
        (SESSION, "session-3.scope"),
        ("0::/\n", None),
    ],
)
def test_a_listener_with_its_process_and_unit(tmp_path: Path, cgroup: str, unit: str | None) -> None:
    roots = box(tmp_path, row(8000, 5001), cgroup=cgroup)
    assert listeners.read(roots) == {"ports": {"8000": {"pid": 321, "command": "vllm", "unit": unit}}}


def test_connections_are_no_listeners_and_v6_counts(tmp_path: Path) -> None:
    roots = box(tmp_path, row(8000, 5001, state="01"), row(22, 7000, address="0" * 32))
    assert listeners.read(roots) == {"ports": {"22": {"pid": None, "command": None, "unit": None}}}


def test_of_two_sockets_on_a_port_the_one_with_an_owner_is_told(tmp_path: Path) -> None:
    roots = box(tmp_path, row(8000, 6000), row(8000, 5001, address="0" * 32))
    assert listeners.read(roots)["ports"]["8000"]["pid"] == 321


def test_a_name_the_kernel_cut_is_told_in_full(tmp_path: Path) -> None:
    words = "/usr/bin/text-generation-launcher\0--port\0" + "8000\0"
    roots = box(tmp_path, row(8000, 5001), comm="text-generation", cmdline=words)
    assert listeners.read(roots)["ports"]["8000"]["command"] == "text-generation-launcher"


def test_a_title_a_process_gave_itself_is_no_name(tmp_path: Path) -> None:
    roots = box(tmp_path, row(22, 5001), comm="sshd", cmdline="sshd: /usr/sbin/sshd -D [listener] 0 of 10-100\0")
    assert listeners.read(roots)["ports"]["22"]["command"] == "sshd"


def test_no_proc_net_at_all(tmp_path: Path) -> None:
    assert listeners.read(Roots(str(tmp_path))) == {"ports": {}}
