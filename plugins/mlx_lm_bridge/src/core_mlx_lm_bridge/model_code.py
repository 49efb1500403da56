"""mlx-lm's code for a model type, read as text: importing it would import MLX.

Imports only the standard library, because the worker reads it as well.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ModelCode:
    """The modules of one model type, including those that it imports from.

    ``name`` is the name of the first, ``modules`` are the names of all. ``reads`` are the names and
    strings in them, without fields that are declared but not used.
    """

    name: str
    modules: frozenset[str]
    reads: frozenset[str]

    def mentions(self, parts: Iterable[str]) -> bool:
        """Return whether a name in the code contains one of these parts."""
        return any(part in name.lower() for name in self.reads for part in parts)


def renamed(package: Path) -> Mapping[str, str]:
    """Return ``MODEL_REMAPPING`` of the package's utils.py; empty without it."""
    source = (package / "utils.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MODEL_REMAPPING":
            names: Mapping[str, str] = ast.literal_eval(node.value)
            return names
    return {}


@functools.cache
def model_code(package: Path, model_type: str) -> ModelCode | None:
    """Return the code of a model type; None if it is missing or unreadable."""
    try:
        name = renamed(package).get(model_type, model_type)
        modules = set[str]()
        reads = frozenset(_reads(package / "models", name, modules))
    except (OSError, SyntaxError, ValueError):
        return None
    return ModelCode(name, frozenset(modules), reads)


def _reads(folder: Path, name: str, seen: set[str]) -> set[str]:
    seen.add(name)
    reads = set[str]()
    for node in ast.walk(ast.parse((folder / f"{name}.py").read_text(encoding="utf-8"))):
        reads |= _words(node)
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            for module in [node.module] if node.module else [alias.name for alias in node.names]:
                if module not in seen and _is_model(folder / f"{module}.py"):
                    reads |= _reads(folder, module, seen)
    return reads


def _words(node: ast.AST) -> set[str]:
    """Return the names that a node uses. A field's annotation is not a use of it."""
    if isinstance(node, ast.Attribute):
        return {node.attr}
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return {node.id}
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {node.value}
    return {node.name} if isinstance(node, ast.alias) else set()


def _is_model(file: Path) -> bool:
    """Return whether a module belongs to a model, not to the helpers of all models."""
    return file.is_file() and "(BaseModelArgs)" in file.read_text(encoding="utf-8")
