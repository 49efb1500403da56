"""The package map: which module depends on which, drawn from the imports of the code.

``python tools/house.py`` prints it with the figures of the source; ``--write`` puts it into
docs/architecture.md, where a test compares it with the code.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- tools/house.py: begin -->", "<!-- tools/house.py: end -->"

HOUSES = {  # from the roof down: each imports those below it only
    "core_mlx_native": "plugins/mlx_native/src/core_mlx_native",
    "core_llama_cpp": "plugins/llama_cpp/src/core_llama_cpp",
    "core_openvino": "plugins/openvino/src/core_openvino",
    "core_mlx_lm_bridge": "plugins/mlx_lm_bridge/src/core_mlx_lm_bridge",
    "core_learn": "plugins/learn/src/core_learn",
    "core_frames": "plugins/frames/src/core_frames",
    "core_langchain": "plugins/langchain/src/core_langchain",
    "core_llm": "plugins/llm/src/core_llm",
    "core_mcp": "plugins/mcp/src/core_mcp",
    "core_lm_eval": "plugins/lm_eval/src/core_lm_eval",
    "core_ray": "plugins/ray/src/core_ray",
    "core_daft": "plugins/daft/src/core_daft",
    "core_remote": "plugins/remote/src/core_remote",
    "core_server": "plugins/server/src/core_server",
    "core_sklearn": "plugins/sklearn/src/core_sklearn",
    "core_conformance": "conformance/src/core_conformance",
    "core_cli": "cli/src/core_cli",
    "core_tasks": "tasks/src/core_tasks",
    "core_wires": "wires/src/core_wires",
    "core_runtime": "runtime/src/core_runtime",
    "core": "core",
}
# These import a package for its folder alone, whose files they then find and register.
_FINDERS = {
    ("core_conformance.checking.check", "core_conformance.checks"),
    ("core_conformance.proof.registry", "core_conformance.proof.saboteurs"),
}
# Methods of a task that call a function made for it: its file needs no other to be read.
CONVENIENCES = {
    ("core_tasks.task", "core_tasks.files"),
    ("core_tasks.task", "core_tasks.fitting"),
    ("core_tasks.task", "core_tasks.tuning.calibrating"),
}
_WIDTH = 96

Rooms = dict[str, set[str]]  # each with those that it imports


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write it into {PAGE.name}")
    if parser.parse_args().write:
        PAGE.write_text(with_picture(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(picture())
        print()
        print(figures())


def with_picture(page: str) -> str:
    """The page with today's picture between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise SystemExit(f"{PAGE} lacks the marks {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n```\n{picture()}\n```\n{END}{after}"


def picture() -> str:
    """Every house with its floors, the highest first. A room imports from the floors below it."""
    graph = grimp.build_graph(*HOUSES, exclude_type_checking_imports=True, cache_dir=None)
    return "\n\n".join(_drawn(house, graph) for house in HOUSES)


def _drawn(house: str, graph: grimp.ImportGraph) -> str:
    rooms, others = _rooms(house, graph)
    below = f", depends on {', '.join(sorted(others))}" if others else ""
    title = f"{HOUSES[house]}/ ({house}{below})"
    files = {room: _files(house, room) for room in rooms}
    floors = [
        _lines(number, sorted(_label(room, files[room]) for room in floor))
        for number, floor in enumerate(_floors(rooms), 1)
    ]
    return "\n".join([title, *reversed(floors)])


def _rooms(house: str, graph: grimp.ImportGraph) -> tuple[Rooms, set[str]]:
    """The rooms of a house, and the other houses that it imports."""
    depth = house.count(".") + 1
    rooms: Rooms = {child.split(".")[depth]: set() for child in graph.find_children(house)}
    others: set[str] = set()
    for module in graph.find_descendants(house):
        room = module.split(".")[depth]
        for imported in graph.find_modules_directly_imported_by(module):
            parts = imported.split(".")
            if parts[0] != house:
                others.add(parts[0])
            elif (module, imported) in _FINDERS | CONVENIENCES:
                continue
            elif len(parts) > depth and parts[depth] != room:
                rooms[room].add(parts[depth])
    return rooms, others


def _floors(rooms: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Rooms that stand on nothing, then those that stand on these, and so on."""
    level: dict[str, int] = {}
    for room in TopologicalSorter(rooms).static_order():  # raises CycleError if there is no order
        level[room] = max((level[below] + 1 for below in rooms[room]), default=0)
    return [[room for room in rooms if level[room] == floor] for floor in sorted({*level.values()})]


def _files(house: str, room: str) -> int:
    """Return the number of files in a folder and its folders; 0 for a room of one file."""
    folder = ROOT / HOUSES[house] / room
    return len([*folder.rglob("*.py")]) - 1 if folder.is_dir() else 0


def _label(room: str, files: int) -> str:
    return f"[{room}/ {files}]" if files else room


def _lines(number: int, labels: Iterable[str]) -> str:
    """Return the lines of one floor."""
    lines, indent = [f"{number:>3}  "], " " * 5
    for label in labels:
        if len(lines[-1]) + len(label) + 2 > _WIDTH:
            lines.append(indent)
        lines[-1] += f"{label}  "
    return "\n".join(line.rstrip() for line in lines)


def figures() -> str:
    """Return the metrics of the source: files, their sizes, and the fullest folder."""
    files = [path for folder in HOUSES.values() for path in (ROOT / folder).rglob("*.py")]
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    own = {path: size for path, size in sizes.items() if path.name != "__init__.py"}
    folders: dict[Path, int] = {}
    for path in own:
        folders[path.parent] = folders.get(path.parent, 0) + 1
    fullest = max(folders, key=folders.__getitem__)
    largest = max(sizes, key=sizes.__getitem__)
    return "\n".join(
        [
            f"{len(files)} files, {len(own)} without __init__.py; {sum(sizes.values())} lines",
            f"median file {statistics.median(own.values()):g} lines",
            f"largest {largest.relative_to(ROOT)}, {sizes[largest]} lines",
            f"under 60 lines: {sum(size < 60 for size in own.values())} files",
            f"fullest folder {fullest.relative_to(ROOT)}, {folders[fullest]} files",
        ]
    )


if __name__ == "__main__":
    main()
