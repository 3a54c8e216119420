"""`gpufleet models check`: whether models' files are whole, and go with their pages and the flags of the plan."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpufleet import terminal
from gpufleet.commands import reach
from gpufleet.commands.folder import Wrong, configuration
from gpufleet.errors import BOX_FAILED, DONE

if TYPE_CHECKING:
    from gpufleet.checkpoint.facts import Facts as Read
    from gpufleet.checks import Facts, Problem, Use
    from gpufleet.instance import Instance
    from gpufleet.models import Model

HERE = "the controller"


@dataclass
class Checked:
    """A model in one place.

    + where: a box, a folder, or the controller; + answer: hostkit.model_check's
    """

    where: str
    name: str
    answer: Mapping[str, Any]
    problems: list[Problem]
    pinned: bool  # whether its page has hashes
    facts: Facts

    @property
    def is_right(self) -> bool:
        return all(problem.level != "error" for problem in self.problems)


@click.command()
@click.argument("names", nargs=-1, metavar="[MODEL]...")
@click.option("--inventory", type=click.Path(path_type=Path), help="On the boxes of this inventory that serve it.")
@click.option("--limit", multiple=True, metavar="NAME", help="Only this box or group; may be given several times.")
@click.option("--path", "folder", type=click.Path(path_type=Path), help="In this folder of the controller.")
@click.option("--deep", is_flag=True, help="Read every file and compare its sha256; takes as long as the disk does.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def check(
    names: tuple[str, ...],
    inventory: Path | None,
    limit: tuple[str, ...],
    folder: Path | None,
    deep: bool,
    as_json: bool,
) -> None:
    """Check each MODEL, by default all that are served or pinned: its files, and what they say.

    Shards are complete and readable, index and shards agree, sizes are as pinned; the checkpoint is what its page says
    and goes with the flags it is served with; the tokenizer's class is one that is known good; the chat template
    renders with tools and thinking; clients get the names they ask for.

    With --inventory on the boxes (connected to; a damaged file makes the next deploy mend it), with --path in a folder,
    else in the controller's store.

    Exit codes: 0 nothing is wrong (warnings may be there); 1 something is, or a box could not be asked; 2 the call or
    the configuration is wrong.
    """
    if inventory is not None and folder is not None:
        raise click.UsageError("give --inventory or --path, not both")
    if limit and inventory is None:
        raise click.UsageError("--limit is for an inventory")
    failed = False
    with configuration():
        if inventory is not None:
            found, failed = _on_boxes(inventory, names, limit, deep)
        elif folder is not None:
            found = [_in_folder(folder, names, deep)]
        else:
            found = list(_in_store(names, deep))
    if as_json:
        reach.print_json({"schema": 1, "models": [_document(item) for item in found]})
    else:
        for item in found:
            for line in lines(item, deep):
                reach.say(line)
    sys.exit(BOX_FAILED if failed or not all(item.is_right for item in found) else DONE)


def _on_boxes(inventory: Path, names: Sequence[str], limit: Sequence[str], deep: bool) -> tuple[list[Checked], bool]:
    """(what was found, whether a box could not be asked), by the plan that each box's look gives."""
    from gpufleet.plan import plan_box

    fleet = reach.fleet_of(inventory)
    for name in names:
        fleet.models.find(name, "gpufleet models check")
    boxes = reach.connect(fleet, fleet.select(limit, ()))
    wanted: list[tuple[str, Model, list[Instance]]] = []
    for box, facts in boxes.facts.items():
        plan = plan_box(fleet.boxes[box], facts, fleet.layers, fleet.stacks, fleet.models)
        for model in plan.models:
            if not names or model.name in names:
                wanted.append((box, model, [one for one in plan.instances if one.model.name == model.name]))
    found = []
    for model_name in dict.fromkeys(model.name for _, model, _ in wanted):
        here = [item for item in wanted if item[1].name == model_name]
        specs = {box: spec(model, deep) for box, model, _ in here}
        answers = boxes.call("model_check", specs, say=lambda box, line: reach.say(f"{box}: {line}", err=True))
        for box, model, instances in here:
            if box in answers:
                found.append(_judged(box, model.name, answers[box], model, [use_of(one) for one in instances]))
    for error in boxes.failures.values():
        reach.say(str(reach.explained(error, reach.shown(fleet))), err=True)
    if not wanted and not boxes.failures:
        raise Wrong(f"no box serves {' or '.join(names) or 'a model'}: look at `serve`, or leave --limit out")
    return found, bool(boxes.failures)


def spec(model: Model, deep: bool) -> dict[str, Any]:
    """What the verb is asked."""
    files = {name: file.model_dump() for name, file in model.source.files.items()}
    asked: dict[str, Any] = {"name": model.name, "directory": model.directory, "files": files, "deep": deep}
    return {**asked, "head": _head(model), "pieces": _pieces(model) if deep else {}}


def _pieces(model: Model) -> dict[str, list[str]]:
    """sha256 of each piece of its large files, as far as the controller keeps them: so it is said where damage is."""
    from gpufleet import model_files
    from gpufleet.settings import Mirrors
    from gpufleet.wheelhouse.store import Store, default_root

    store, found = Store(default_root()), {}
    for name, item in model_files.files(model, Mirrors()).items():
        if kept := store.pieces(item):
            found[name] = kept
    return found


def _head(model: Model) -> dict[str, Any] | None:
    if model.mtp_head is None:
        return None
    known = model.mtp_head.source.files.get(model.mtp_head.file)
    return {"file": model.mtp_head.file, "sha256": known.sha256 if known else None}


def _in_folder(folder: Path, names: Sequence[str], deep: bool) -> Checked:
    if len(names) > 1:
        raise click.UsageError("--path is one model's folder: name one MODEL, or none")
    if not folder.is_dir():
        raise Wrong(f"there is no folder {folder}: give one with a model's files")
    model = _catalogue().find(names[0], "gpufleet models check") if names else None
    return _local(str(folder), folder, model, deep)


def _in_store(names: Sequence[str], deep: bool) -> Iterator[Checked]:
    """Of the controller's store, by links with the names that the files have in the model's directory."""
    from gpufleet import model_files
    from gpufleet.settings import Mirrors
    from gpufleet.wheelhouse.store import Store, default_root

    catalogue = _catalogue()
    chosen = [catalogue.find(name, "gpufleet models check") for name in names]
    if elsewhere := [model.name for model in chosen if model.source.path]:
        remedy = "check it on a box (--inventory), or where it lies (--path)"
        raise Wrong(f"{', '.join(elsewhere)}: it lies on boxes, not in the store: {remedy}")
    store = Store(default_root())
    fetched = [item for item in catalogue.values() if not item.source.path]
    if not chosen and not fetched:
        remedy = "check models on boxes (--inventory), or where one lies (--path)"
        raise Wrong(f"all models lie on boxes, none in the store: {remedy}")
    for model in chosen or fetched:
        with tempfile.TemporaryDirectory(prefix="gpufleet-check-") as folder:
            for name, item in model_files.files(model, Mirrors()).items():
                at = store.path(item)
                link = Path(folder) / name
                link.parent.mkdir(parents=True, exist_ok=True)
                if at.is_file():
                    link.symlink_to(at)
            yield _local(HERE, Path(folder), model, deep)


def _local(where: str, folder: Path, model: Model | None, deep: bool) -> Checked:
    from gpufleet.checks import Use
    from hostkit import model_check
    from hostkit.head import ORIGINAL

    asked = spec(model, deep) if model else {"files": {}, "head": None}
    here = where == HERE
    # As it is published, it has the head that is to be replaced: the store always, a folder mostly.
    replaced = (folder / (model_check.INDEX + ORIGINAL)).exists()
    head = asked["head"] if replaced else None
    answer = model_check.look(
        str(folder),
        asked["files"],
        asked.get("pieces", {}),
        head,
        deep,
        say=lambda line: reach.say(f"{where}: {line}", err=True),
    )
    for item in answer["problems"]:
        if item["remedy"].startswith("deploy this box"):
            item["remedy"] = f"run `gpufleet fetch --model {model.name}`" if here and model else "fetch it again"
    uses = [Use("", "vllm", model.args, names=(model.served_name, *model.aliases))] if model else []
    own_head = replaced or not (model and model.mtp_head)
    return _judged(where, model.name if model else "", answer, model, uses, own_head)


def _judged(
    where: str,
    name: str,
    answer: Mapping[str, Any],
    model: Model | None,
    uses: Sequence[Use],
    own_head: bool = True,
) -> Checked:
    from gpufleet import checks
    from gpufleet.checks.facts import of_answer

    pinned = bool(model and model.source.files)
    facts = of_answer(answer)
    return Checked(where, name, answer, checks.problems(facts, model, uses, own_head), pinned, facts)


def use_of(instance: Instance) -> Use:
    """How a planned instance serves its model."""
    from gpufleet.checks import Use
    from gpufleet.dialect import DIALECTS

    given = instance.args.get(DIALECTS[instance.stack.engine].served_name)
    names = tuple(str(item) for item in (given if isinstance(given, list) else [given]) if item is not None)
    return Use(
        instance.name,
        instance.stack.engine,
        instance.args,
        frozenset(trait for trait in instance.traits if trait.startswith("sm") and "_" not in trait),
        frozenset(instance.stack.provides),
        names,
    )


def _catalogue() -> Any:
    from gpufleet import catalogue, paths
    from gpufleet.models import Model

    return catalogue.load(Model, "model", paths.model_folders(Path.cwd()))


def lines(item: Checked, deep: bool) -> Iterator[str]:
    """What is said of a model in one place."""
    head = f"{item.where}: {item.name}: " if item.name else f"{item.where}: "
    for problem in item.problems:
        yield terminal.told(head + problem.line)
    if item.answer.get("doubted"):
        yield f"{head}the next deploy looks at each of its files, and mends what is wrong."
    if item.is_right and item.answer.get("tensors"):
        size = item.answer["bytes"] / 1e9
        yield f"{head}in order: {item.answer['files']} files, {size:.1f} GB{_how(item, deep)}."


def _how(item: Checked, deep: bool) -> str:
    if not item.pinned:
        return "; there are no hashes to compare with"
    return ", as pinned to the last byte" if deep else "; --deep compares every byte"


def _document(item: Checked) -> dict[str, Any]:
    problems = [
        {"level": each.level, "file": each.file, "cause": each.cause, "remedy": each.remedy} for each in item.problems
    ]
    answer = {key: item.answer.get(key) for key in ("files", "bytes", "damaged", "doubted")}
    read = item.facts.read if item.facts.headers else ""
    is_ = {"tensors": len(item.facts.headers), "architecture": None if isinstance(read, str) else _shape(read)}
    return {
        "where": item.where,
        "model": item.name or None,
        "right": item.is_right,
        "problems": problems,
        **answer,
        **is_,
    }


def _shape(read: Read) -> dict[str, Any]:
    return read.architecture.model_dump()
