"""What a deploy would change in a release, file by file."""

from __future__ import annotations

import json

from gpufleet.difference import between, of_release, summary
from gpufleet.render import release
from tests.unit.fleets import cpu_facts, plan

UNIT = "/etc/systemd/system/gpufleet-tiny.service"


def test_each_file_has_its_diff_and_the_manifest_only_what_they_do_not_show() -> None:
    manifest = {"schema": 1, "files": {"serve.yaml": "1"}, "runtime": "engine-1", "model": "a"}
    before = {"serve.yaml": "a: 1\nb: 2\n", "gone": "x\n", "manifest.json": json.dumps(manifest)}
    after = {
        "serve.yaml": "a: 1\nb: 3\n",
        "new": "y\n",
        "manifest.json": json.dumps({**manifest, "files": {"serve.yaml": "2"}, "runtime": "engine-2"}),
    }
    found = between(before, after)
    assert summary(found) == "gone removed, new added, serve.yaml changed, manifest.json changed"
    lines = {change.path: change.lines for change in found}
    assert lines["serve.yaml"] == ["--- a/serve.yaml", "+++ b/serve.yaml", "@@ -1,2 +1,2 @@", " a: 1", "-b: 2", "+b: 3"]
    assert lines["gone"][:2] == ["--- a/gone", "+++ /dev/null"] and lines["new"][:2] == ["--- /dev/null", "+++ b/new"]
    assert '+ "runtime": "engine-2"' in lines["manifest.json"] and not any("files" in line for line in found[-1].lines)


def test_hashes_alone_are_no_difference() -> None:
    one, other = (json.dumps({"files": {"serve.yaml": text}, "runtime": "r"}) for text in "12")
    assert between({"manifest.json": one}, {"manifest.json": other}) == []
    assert between({"manifest.json": "[]"}, {"manifest.json": "no JSON"})[0].kind == "changed"


def test_a_secret_is_shown_as_changed_without_its_value() -> None:
    (change,) = between({"serve.env": 'HF_TOKEN="old1"\n'}, {"serve.env": 'HF_TOKEN="new1"\n'})
    assert change.lines[-2:] == ["-HF_TOKEN=<hidden>", "+HF_TOKEN=<hidden, changed>"]
    (added,) = between({}, {"serve.env": 'HF_TOKEN="new1"\n'})
    (removed,) = between({"serve.env": 'HF_TOKEN="old1"\n'}, {})
    assert added.lines[-1] == "+HF_TOKEN=<hidden>" and removed.lines[-1] == "-HF_TOKEN=<hidden>"


def test_a_new_instance_shows_all_its_files() -> None:
    wanted = release(plan(cpu_facts()).instances[0])
    changes = of_release({}, wanted.files, UNIT)
    assert {change.path for change in changes} == set(wanted.files) and {change.kind for change in changes} == {"added"}


def test_a_flag_that_changes_shows_as_one_line() -> None:
    before = release(plan(cpu_facts()).instances[0])
    after = release(plan(cpu_facts(), {"serve_args": {"max-model-len": 256}}).instances[0])
    there = {"current": before.digest, "releases": {before.digest: {"files": before.files}}, "unit": None}
    (change,) = of_release(there, after.files, UNIT)
    assert [line for line in change.lines[2:] if line[0] in "+-"] == ["-max-model-len: 512", "+max-model-len: 256"]


def test_an_installed_unit_that_was_edited_is_shown() -> None:
    wanted = release(plan(cpu_facts()).instances[0])
    there = {"current": wanted.digest, "releases": {wanted.digest: {"files": wanted.files}}, "unit": "[Unit]\n"}
    (change,) = of_release(there, wanted.files, UNIT)
    assert change.path == UNIT and "-[Unit]" not in change.lines and change.lines[0] == f"--- a{UNIT}"
    same = {**there, "unit": wanted.files["gpufleet-tiny.service"]}
    assert of_release(same, wanted.files, UNIT) == []
