"""A runtime is made aside of the store's files alone, and has its name only when all of it is right."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hostkit import files, install, runtime, space, state
from hostkit.errors import Failure
from tests.unit.workshop import UV_WHEEL, Workshop, wheel, zipped

ENGINE = {"engine.py": "MARK = 'ours'\n\ndef main():\n    print('serving')\n"}
SCRIPT = {"engine-1.0.dist-info/entry_points.txt": "[console_scripts]\nengine = engine:main\n"}


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    return Workshop(tmp_path, monkeypatch)


def locked(box: Workshop, requires: str = "") -> dict[str, Any]:
    return box.stock(*wheel("engine", "1.0", {**ENGINE, **SCRIPT}, requires))


def repacked(box: Workshop) -> dict[str, Any]:
    return box.stock(*wheel("patched", "2.0+ours.abc", {"patched.py": "import engine\n"}))


def test_a_runtime_holds_its_lock_and_the_wheels_beside_it(box: Workshop) -> None:
    spec = box.spec(locked(box), more=(repacked(box),), verify=["import patched; assert patched.engine.MARK == 'ours'"])
    answer = runtime.run(spec)
    assert answer["verified"]["versions"] == {"engine": "1.0", "patched": "2.0+ours.abc"}
    assert box.runtimes == ["engine-1"]
    mark = files.mark(answer["path"])
    assert mark["stack"] == "engine" and set(mark["files"]) == {item["sha256"] for item in spec["files"]}
    # its programs run from its final name, though it was made under another
    done = subprocess.run([f"{answer['path']}/bin/engine"], capture_output=True, text=True, check=True)
    assert done.stdout == "serving\n"
    assert runtime.run({**spec, "files": []}) == answer  # complete: nothing is looked at any more


def test_nothing_in_it_says_where_it_was_made(box: Workshop) -> None:
    path = runtime.run(box.spec(locked(box)))["path"]
    found = subprocess.run(["grep", "-rIl", ".building", path], capture_output=True, text=True, check=False)
    assert found.stdout == ""


def test_what_an_earlier_run_left_goes(box: Workshop) -> None:
    left = box.root / "opt/runtimes/.engine-1.building/tree/lib"
    left.mkdir(parents=True)
    runtime.run(box.spec(locked(box)))
    assert box.runtimes == ["engine-1"]


def test_a_runtime_without_its_mark_makes_way_and_its_instances_are_doubted(box: Workshop) -> None:
    spec = box.spec(locked(box), instances=["tiny"])
    path = Path(runtime.run(spec)["path"])
    (path / files.COMPLETE).unlink()
    (path / "stray").write_text("")
    state.update("tiny", gated="x", stale=False)
    runtime.run(spec)
    assert state.instance("tiny")["stale"] and not (path / "stray").exists()
    assert box.runtimes == ["engine-1"]


def fails(box: Workshop, spec: dict[str, Any], words: str) -> Failure:
    """The install fails with these words, and leaves nothing under the runtime's name or beside it."""
    with pytest.raises(Failure, match=words) as caught:
        runtime.run(spec)
    assert box.runtimes == []
    assert caught.value.remedy
    return caught.value


def test_a_file_that_the_store_lacks_is_named(box: Workshop) -> None:
    item = locked(box)
    box.stored(item).unlink()
    fails(box, box.spec(item), r"engine-1\.0-py3-none-any\.whl is not whole in the box's store")


def test_a_truncated_file_is_named(box: Workshop) -> None:
    item = locked(box)
    box.stored(item).write_bytes(box.stored(item).read_bytes()[:-20])
    fails(box, box.spec(item), r"engine-1\.0-py3-none-any\.whl is not whole in the box's store")


def test_a_file_with_a_changed_byte_is_named_and_goes_so_that_it_is_sent_again(box: Workshop) -> None:
    item = locked(box)
    data = bytearray(box.stored(item).read_bytes())
    data[40] ^= 1
    box.stored(item).write_bytes(data)
    fails(box, box.spec(item), r"engine-1\.0-py3-none-any\.whl was damaged in the box's store, and was removed")
    assert not box.stored(item).exists()
    assert runtime.run(box.spec(locked(box)))["path"]


def test_a_wheel_that_is_none_is_named(box: Workshop) -> None:
    item = box.stock("engine-1.0-py3-none-any.whl", b"<html>not found</html>")
    fails(box, box.spec(item), r"engine-1\.0-py3-none-any\.whl is no whole wheel")


def test_a_requirement_without_hash_is_refused(box: Workshop) -> None:
    item = locked(box)
    spec = box.spec(item)
    fails(box, {**spec, "lock": "engine==1.0\n"}, "uv pip install for engine-1 failed: .*hash")


def test_what_no_lock_names_is_not_fetched(box: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an index nor a configuration of the box's is asked, whatever says so."""
    config = box.root / ".config/uv"
    config.mkdir(parents=True)
    (config / "uv.toml").write_text("index-url = 'http://127.0.0.1:9/'\nno-index = false\n")
    monkeypatch.setenv("UV_INDEX_URL", "http://127.0.0.1:9/")
    spec = box.spec(locked(box))
    lock = spec["lock"] + f"absent==1.0 \\\n    --hash=sha256:{'0' * 64}\n"
    assert "127.0.0.1" not in fails(box, {**spec, "lock": lock}, "absent").cause


def test_a_requirement_that_is_not_met_is_an_error(box: Workshop) -> None:
    fails(box, box.spec(locked(box, requires="other>=3")), "uv pip check for engine-1 failed: .*other")


def test_a_runtime_that_does_not_verify_is_not_there(box: Workshop) -> None:
    spec = box.spec(locked(box), verify=["import engine; assert engine.MARK == 'theirs', 'not theirs'"])
    fails(box, spec, "engine-1 fails its verification: import engine; .* fails with AssertionError: not theirs")


def test_a_version_that_is_not_the_locked_one_is_told_with_its_name(box: Workshop) -> None:
    spec = box.spec(locked(box), versions={"engine": "1.1"})
    fails(box, spec, r"engine is 1\.0, not the locked 1\.1")


def test_what_no_lock_names_does_not_get_in(box: Workshop) -> None:
    spec = box.spec(locked(box), more=(repacked(box),), versions={"engine": "1.0"})
    fails(box, spec, r"patched 2\.0\+ours\.abc is in no lock")


def test_it_is_verified_as_its_services_run(box: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    path = f"{box.root}/opt/runtimes/engine-1"
    env = {"PATH": f"{path}/bin:/usr/bin", "QUOTED": 'a "b" \\c'}
    line = (
        "import os; assert os.getcwd() == '/' and os.environ['QUOTED'] == 'a \"b\" \\\\c';"
        "assert os.path.isfile(os.environ['PATH'].split(':')[0] + '/engine')"
    )
    runtime.run(box.spec(locked(box), verify=[line], env=env))
    told = box.told.read_text().splitlines()
    assert {"--uid=gpufleet", "--working-directory=/", "--property=ProtectSystem=strict", "--wait"} <= set(told)
    assert not any("QUOTED" in word for word in told)
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"event": "log", "message": "verifying engine-1"}


def test_a_verification_that_crashes_is_an_error(box: Workshop) -> None:
    spec = box.spec(locked(box), verify=["import os; os.kill(os.getpid(), 11)"])
    fails(box, spec, "verifying engine-1 ended with status")


def test_too_little_room_is_told_before_anything_is_unpacked(box: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "SPARE", 1 << 62)
    cause = fails(box, box.spec(locked(box)), "engine-1 needs .* MiB").cause
    assert f"mounted at {space.mount_point(str(box.root))}" in cause and "MiB free" in cause
    assert not (box.root / "opt/kit").exists()


def test_a_disk_that_fills_up_in_the_middle_is_named(box: Workshop) -> None:
    text = (
        "#!/bin/sh\n[ $1 = venv ] || { echo 'error: cannot write: No space left on device (os error 28)'; exit 2; }\n"
    )
    full = box.stock(UV_WHEEL, zipped({"uv-0.0.1.data/scripts/uv": text}))
    spec = {**box.spec(locked(box)), "uv": full}
    fails(box, spec, "the file system of .* has .* MiB free, too few for uv pip install for engine-1")


def test_uv_has_its_name_only_when_it_is_whole(box: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where an earlier try, or an older gpufleet, left something under that name."""
    folder = Path(install.kit_folder(), install.uv_folder(box.uv))
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "uv").write_bytes(b"half")

    def struck(*_: object) -> None:
        assert not folder.exists()
        raise OSError("the power went")

    with monkeypatch.context() as power, pytest.raises(OSError, match="the power went"):
        power.setattr(install.shutil, "copyfileobj", struck)
        install.uv(box.uv)
    assert not folder.exists()
    program = Path(install.uv(box.uv))
    assert program.parent.parent == folder and program.stat().st_mode & 0o111
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_uv_is_the_one_that_is_pinned(box: Workshop) -> None:
    box.stored(box.uv).write_bytes(zipped({"uv-0.0.1.data/scripts/uv": "#!/bin/sh\n"}))
    with pytest.raises(Failure, match="was damaged"):
        install.uv(box.uv)


@pytest.mark.parametrize(("mib", "enough"), [(0, 512), (1000, 1612)])
def test_room_for_a_runtime_is_a_tenth_more_than_its_files(mib: int, enough: int) -> None:
    assert space.needed(mib << 20) == enough << 20
