"""Plans as tables: a line for each instance, then what the rules say, box by box."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from gpufleet import terminal
from gpufleet.instance import Instance
from gpufleet.planning import Planned
from gpufleet.rules import silenced_by
from gpufleet.screen import screen

COLUMNS = ("box", "traits", "instance", "stack", "GPUs", "link", "port", "max-model-len", "KV tokens", "toolkit")
STYLES = {"error": "red", "warning": "yellow", "info": ""}


def show(found: Sequence[Planned]) -> None:
    """Print to standard output."""
    console = screen()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in COLUMNS:
        table.add_column(title, overflow="fold")
    for item in found:
        for row in rows(item):
            terminal.add_row(table, *row)
    console.print(table)
    lines = [(line, style) for item in found for line, style in notes(item)]
    if lines:
        console.print()
    for line, style in lines:
        console.print(terminal.plain(line), markup=False, style=style)


def rows(item: Planned) -> list[tuple[str, ...]]:
    """The lines of one box."""
    plan = item.plan
    head = (plan.name, " ".join(plan.traits))
    if not plan.instances:
        return [(*head, "-", "", "", "", "", "", "", " ".join(plan.toolkits))]
    return [
        (*(head if number == 0 else ("", "")), *_instance(instance)) for number, instance in enumerate(plan.instances)
    ]


def _instance(item: Instance) -> tuple[str, ...]:
    memory = item.memory
    room = f"{memory.kv_tokens:,} ({memory.concurrency:.2f}x)" if memory else ""
    length = f"{memory.max_model_len:,}" if memory else str(item.args.get("max-model-len") or "")
    return (
        item.name,
        item.stack.name,
        ",".join(str(index) for index in item.gpus) or ("none free" if item.size else "cpu"),
        item.link or "",
        str(item.port),
        length,
        room,
        item.cuda_toolkit or "",
    )


def notes(item: Planned) -> list[tuple[str, str]]:
    """(line, style) of each finding, of what is silenced, and of GPUs that nothing uses."""
    plan = item.plan
    lines = [
        (
            f"{plan.name}: {found.level} {found.label}: {found.message}. Remedy: {found.remedy}.",
            STYLES[found.level],
        )
        for found in item.findings
    ]
    lines += [
        (f"{plan.name}: {instance.name} takes the place of {', '.join(instance.replaces)}", "")
        for instance in plan.instances
        if instance.replaces
    ]
    if plan.instances and plan.idle_gpus:
        lines.append((f"{plan.name}: not used: GPU {', '.join(str(index) for index in plan.idle_gpus)}", ""))
    if item.silenced:
        codes = ", ".join(dict.fromkeys(found.label for found in item.silenced))
        lines.append((f"{plan.name}: silenced: {codes} (by {silenced_by(plan)})", ""))
    return lines
