"""Runtimes on a booted box without any route outside: made from its store, compiled, verified, broken off, freed.

The extension has the shape of FlashQLA's: a .cu file that a script compiles in the new runtime with the box's toolkit.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpufleet import kit
from lab import state
from tests.command import GPUFLEET, run
from tests.lab.support import SmallLab, small_lab, wait_for

pytestmark = pytest.mark.lab

BOX = "lab-1"
RUNTIMES = "/opt/gpufleet/runtimes"
WHEELS = ("click", "h11", "numpy", "uvicorn")
SCRIPT = """\
import os, pathlib, subprocess
into = pathlib.Path(os.environ["GPUFLEET_INTO"]) / os.environ["GPUFLEET_ARCH"]
into.mkdir(parents=True)
source = pathlib.Path(os.environ["HOME"]) / "kernel.cu"
source.write_text('''
__global__ void twice(float *at) { at[threadIdx.x] *= 2; }
extern "C" int launch(float *at) { twice<<<1, 32>>>(at); return (int) cudaGetLastError(); }
extern "C" int built_for() { const int list[] = {__CUDA_ARCH_LIST__}; return list[0]; }
''')
number = os.environ["TORCH_CUDA_ARCH_LIST"].replace(".", "")
flags = ["-shared", "-Xcompiler", "-fPIC", f"-gencode=arch=compute_{number},code=sm_{number}"]
subprocess.run([os.environ["CUDA_HOME"] + "/bin/nvcc", *flags, "-o", str(into / "kernel.so"), str(source)], check=True)
print("gpufleet: kernel.so is made", flush=True)
"""
STEP = {"name": "kernel", "script": SCRIPT, "into": "uvicorn/prebuilt"}
# What the services' user may do, and where it is.
CONFINED = (
    "import os; assert os.getuid() and os.getcwd() == '/' and os.environ['MODE'] == 'a b' and os.listdir('/tmp') == []"
    " and not os.access('/opt', os.W_OK) and not os.access('/home', os.R_OK)"
)
BUILT = (
    "import ctypes, uvicorn; assert ctypes.CDLL(uvicorn.__path__[0] + '/prebuilt/sm75/kernel.so').built_for() == 750"
)
WAIT = (
    "import os, time\nprint('gpufleet: waiting', flush=True)\nwhile not os.path.exists('/root/go'): time.sleep(0.05)\n"
)


class Workshop:
    """The box, its store, and the kit on it as a controller calls it: over SSH, as root."""

    def __init__(self, lab: SmallLab, name: str = BOX) -> None:
        self.lab, self.name = lab, name
        self.root = lab.where.boxes / name / "root"
        built = kit.build()
        self.kit = f"/opt/gpufleet/kit/{built.name}"
        self.put(self.kit, built.data)
        pool = lab.where.cache / "wheels"
        self.uv = self.stock(next(pool.glob("uv-*.whl")))
        self.wheels = [self.stock(next(pool.glob(f"{name}-[0-9]*.whl"))) for name in WHEELS]

    def put(self, path: str, data: bytes) -> None:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    def stock(self, wheel: Path) -> dict[str, Any]:
        data = wheel.read_bytes()
        sha256 = hashlib.sha256(data).hexdigest()
        self.put(f"/opt/gpufleet/store/{sha256}/{wheel.name}", data)
        return {"filename": wheel.name, "sha256": sha256, "size": len(data)}

    def spec(self, name: str, **other: Any) -> dict[str, Any]:
        versions = {item["filename"].split("-")[0]: item["filename"].split("-")[1] for item in self.wheels}
        pins = zip(versions.items(), self.wheels, strict=True)
        return {
            "name": name,
            "python": "3.11",
            "uv": {key: self.uv[key] for key in ("filename", "sha256")},
            "files": [self.uv, *self.wheels],
            "lock": "".join(f"{name}=={version} --hash=sha256:{item['sha256']}\n" for (name, version), item in pins),
            "toolkit": None,
            "archs": [],
            "gpus": 0,
            "compile": [],
            "compiled": None,
            "verify": [],
            "versions": versions,
            "env": {"PATH": f"{RUNTIMES}/{name}/bin:/usr/bin:/bin", "MODE": "a b"},
            "instances": [],
            "facts": {"stack": "small"},
            **other,
        }

    def compiling(self, name: str, **other: Any) -> dict[str, Any]:
        found = self.spec(name, toolkit="13-0", archs=["sm75"], compile=[STEP], verify=[CONFINED, BUILT], **other)
        return {**found, "env": {**found["env"], "CUDA_HOME": "/usr/local/cuda-13.0"}}

    def start(self, verb: str, spec: dict[str, Any]) -> subprocess.Popen[str]:
        lab = state.load(self.lab.where)
        options = ["-i", lab.ssh_key, "-o", f"UserKnownHostsFile={lab.known_hosts}", "-o", "BatchMode=yes"]
        process = subprocess.Popen(
            ["ssh", *options, f"root@{lab.box(self.name).address}", f"python3 {self.kit} {verb}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(spec) + "\n")
        process.stdin.close()
        return process

    def job(self, spec: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """(the last event, what was told before) of the verb `runtime`."""
        process = self.start("job", {"verb": "runtime", "spec": spec})
        return ended(process)

    def fails(self, spec: dict[str, Any]) -> str:
        """What the verb fails with; the runtime is then neither there nor half there."""
        last, told = self.job(spec)
        assert last["event"] == "error", told
        assert spec["name"] not in self.runtimes()
        return f"{last['cause']}. {last['remedy']}"

    def runtimes(self) -> list[str]:
        return sorted(path.name for path in (self.root / RUNTIMES.lstrip("/")).iterdir())

    def jobs(self) -> str:
        """What jobs have left: files, and units that systemd remembers."""
        units = "systemctl list-units --all --plain --no-legend 'gpufleet-job-*'"
        return self.lab.sh(self.name, f"ls /run/gpufleet/jobs; {units}")


def ended(process: subprocess.Popen[str]) -> tuple[dict[str, Any], list[str]]:
    assert process.stdout is not None
    events = [json.loads(line) for line in process.stdout.read().splitlines()]
    process.wait(60)
    assert events
    return events[-1], [event.get("message", "") for event in events[:-1]]


@pytest.fixture(scope="module")
def lab() -> Iterator[SmallLab]:
    with small_lab("inst", 91, ["cpu-only"]) as found:
        yield found


@pytest.fixture(scope="module")
def box(lab: SmallLab) -> Workshop:
    found = Workshop(lab)
    (deb,) = lab.where.cache.glob("cuda-*/debian12/x86_64/*.deb")
    shutil.copy(deb, found.root / "root")
    lab.sh(BOX, f"apt-get -qq update && apt-get -qq install -y g++ && dpkg -i /root/{deb.name} && rm /root/{deb.name}")
    lab.sh(BOX, "ln -s cuda-12.9 /usr/local/cuda")  # leads nowhere: nothing may go by it
    return found


def test_a_runtime_is_made_compiled_and_verified_without_a_route(box: Workshop) -> None:
    spec = box.compiling("small-1")
    last, told = box.job(spec)
    assert last["event"] == "result", (last, told)
    assert "kernel.so is made" in told
    assert last["verified"]["nvcc"] == "13.0" and set(last["verified"]["versions"]) == set(WHEELS)
    assert last["compiled"]["filename"] == "small-1-compiled.tar" and last["compiled"]["glibc"] == "2.36"
    assert box.runtimes() == ["small-1"] and box.jobs() == ""
    # its programs run from its name, and their bytecode is there: services could not write it
    assert "Running uvicorn" in box.lab.sh(BOX, f"{RUNTIMES}/small-1/bin/uvicorn --version")
    pyc = f"{RUNTIMES}/small-1/lib/python3.11/site-packages/uvicorn/__pycache__/main.cpython-311.pyc"
    assert box.lab.sh(BOX, f"stat -c %A {pyc}") == "-rw-r--r--"
    again, told = box.job(spec)
    assert again == last and told == []


def test_what_a_like_box_compiled_is_unpacked(box: Workshop) -> None:
    first, _ = box.job(box.compiling("small-1"))
    last, told = box.job(box.compiling("small-2", compiled=first["compiled"]))
    assert last["event"] == "result" and last["compiled"] == first["compiled"], (last, told)
    assert "unpacking what another box compiled (small-1-compiled.tar)" in told and "kernel.so is made" not in told


def test_a_verification_that_fails_leaves_nothing(box: Workshop) -> None:
    said = box.fails(box.spec("small-3", verify=["import ctypes; ctypes.CDLL('libnuma.so.1')"]))
    assert "fails with OSError: libnuma.so.1: cannot open shared object file" in said
    assert "Install the package" in said or "install the package" in said


def test_a_broken_connection_does_not_end_it_and_the_next_call_attaches(box: Workshop) -> None:
    step = {**STEP, "script": WAIT + SCRIPT}
    spec = {**box.compiling("small-4"), "compile": [step]}
    spec["env"]["TOKEN"] = "s3cret"
    process = box.start("job", {"verb": "runtime", "spec": spec})
    assert process.stdout is not None
    for line in process.stdout:
        if "waiting" in line:
            break
    process.kill()
    process.wait(30)
    (unit,) = [line.split()[0] for line in box.jobs().splitlines() if ".service" in line]
    assert box.lab.sh(BOX, f"systemctl is-active {unit}") == "active"
    assert not any("s3cret" in " ".join(words) for words in box.lab.commands(BOX))
    assert box.lab.sh(BOX, "ls /run/gpufleet/jobs | grep -v events || true") == ""
    process = box.start("job", {"verb": "runtime", "spec": spec})
    box.lab.sh(BOX, "touch /root/go")
    last, told = ended(process)
    box.lab.sh(BOX, "rm /root/go")
    assert last["event"] == "result", (last, told)
    assert told[0] == "runtime is running already: following it" and "waiting" in told and "kernel.so is made" in told
    assert "small-4" in box.runtimes() and box.jobs() == ""


def test_a_killed_build_says_so_and_the_next_one_begins_again(box: Workshop) -> None:
    spec = {**box.compiling("small-5"), "compile": [{**STEP, "script": WAIT + SCRIPT}]}
    process = box.start("job", {"verb": "runtime", "spec": spec})
    wait_for(lambda: "waiting" in box.lab.sh(BOX, "cat /run/gpufleet/jobs/*.events || true"))
    box.lab.sh(BOX, "systemctl kill --kill-whom=all -s KILL 'gpufleet-job-*'")
    last, told = ended(process)
    assert last["event"] == "error" and "runtime did not end: it was ended by signal 9" in last["cause"], (last, told)
    assert "small-5" not in box.runtimes() and ".small-5.building" in box.runtimes()
    assert box.jobs() == ""
    last, told = box.job({**spec, "compile": [STEP]})
    assert last["event"] == "result", (last, told)
    assert "an earlier install of small-5 did not end: beginning it again" in told
    assert ".small-5.building" not in box.runtimes()


def test_a_full_disk_is_named(box: Workshop) -> None:
    box.lab.sh(BOX, f"mount -t tmpfs -o size=700m none {RUNTIMES}")
    try:
        fill = "import os; open(os.environ['GPUFLEET_INTO'] + '/big', 'wb').write(bytes(800 << 20))"
        spec = {**box.compiling("small-6"), "compile": [{**STEP, "script": fill}]}
        said = last_words(box, spec)
        assert f"the file system of {RUNTIMES}" in said and "too few for compiling kernel for sm75" in said
        box.lab.sh(BOX, f"mount -o remount,size=100m {RUNTIMES}")
        said = last_words(box, box.spec("small-6"))
        assert f"(mounted at {RUNTIMES}) has " in said and "small-6 needs " in said and "make room there" in said
        assert box.lab.sh(BOX, f"ls -A {RUNTIMES}") == ""
    finally:
        box.lab.sh(BOX, f"umount {RUNTIMES}")


def last_words(box: Workshop, spec: dict[str, Any]) -> str:
    last, told = box.job(spec)
    assert last["event"] == "error", told
    return f"{last['cause']}. {last['remedy']}"


def test_gc_shows_and_frees_what_no_release_names(box: Workshop, tmp_path: Path) -> None:
    folder = box.lab.folder(tmp_path, {BOX: {}})
    before = box.runtimes()
    assert len(before) >= 2
    young = run(folder, "gc", "inventory/home.py", program=GPUFLEET)
    assert young.returncode == 0 and "things younger than an hour are left" in young.stdout, young.stdout
    box.lab.sh(BOX, f"find {RUNTIMES} /opt/gpufleet/store -maxdepth 2 -exec touch -hd '2 days ago' {{}} +")
    box.lab.sh(BOX, f"mkdir {RUNTIMES}/.left.building")
    shown = run(folder, "gc", "inventory/home.py", program=GPUFLEET)
    assert shown.returncode == 0 and "add --yes" in shown.stdout, shown.stdout
    assert all(f"runtimes/{name}" in shown.stdout for name in [*before, ".left.building"])
    assert box.runtimes() == sorted([*before, ".left.building"])
    freed = run(folder, "gc", "inventory/home.py", "--yes", program=GPUFLEET)
    assert freed.returncode == 0 and f"{BOX}: freed " in freed.stdout, freed.stdout
    assert box.runtimes() == []
    assert box.lab.sh(BOX, "ls /opt/gpufleet/store") == ""
    assert box.lab.sh(BOX, f"ls {box.kit}") == box.kit
    nothing = run(folder, "gc", "inventory/home.py", "--yes", program=GPUFLEET)
    assert nothing.returncode == 0 and "0 B can go" in nothing.stdout, nothing.stdout


def test_gc_of_a_box_that_is_off_is_told(box: Workshop, tmp_path: Path) -> None:
    folder = box.lab.folder(tmp_path, {BOX: {}})
    box.lab.sh(BOX, "systemctl stop ssh")
    done = run(folder, "gc", "inventory/home.py", program=GPUFLEET)
    assert done.returncode == 1, done.stdout
    assert done.stdout.startswith(f"{BOX}: "), done.stdout
