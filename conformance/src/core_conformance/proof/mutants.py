"""Mutants of a module: copies of its source with one small fault each, as authors make them.

Left out by rule, for no clause is about them: texts (messages, names, docstrings), annotations,
decorators, whatever a ``raise`` says, and the numbers of the model itself (constants of a
module): with others it is another model, and no less sound. The operators are the usual ones of
mutation testing (Offutt et al., "An experimental determination of sufficient mutant operators",
TOSEM 5(2), 1996) and the faults of engines: off by one, a condition dropped, two arguments swapped.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from core.kit.labels import common_length

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
}
_SHOWN = 40  # characters around a difference
_UNORDERED = ("min", "max", "isinstance")  # arguments in any order, or never reordered
_GUARDS = ("strict", "daemon", "name", "target")  # they change nothing while all is well
_TWINS = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """The source of a module with one fault. ``name`` says which, whatever its line is."""

    module: str
    name: str
    source: str

    @property
    def place(self) -> str:
        """The place of the fault: ``module:function``, or ``module:Class.method``."""
        return self.name.partition(": ")[0]


@dataclass(frozen=True, slots=True)
class _Site:
    """The node ``number`` of the walk, its parent field, and its replacement."""

    number: int
    function: str
    before: ast.AST
    after: ast.AST


def mutants(module: str, source: str) -> list[Mutant]:
    """Return every mutant of a module's source, in its order; equal names are numbered."""
    tree = ast.parse(source)
    changed, names = list[Mutant](), dict[str, int]()
    for site in _sites(tree):
        name = f"{module}:{site.function}: {_shown(site)}"
        count = names[name] = names.get(name, 0) + 1
        name = name if count == 1 else f"{name} #{count}"
        changed.append(Mutant(module, name, _changed(tree, site)))
    same = ast.unparse(tree)  # as with two equal arguments swapped
    return [mutant for mutant in changed if mutant.source != same]


def traced(module: str, source: str) -> str:
    """Return the source, in which all that runs puts its `Mutant.place` into ``called`` as it
    begins.
    """
    tree = ast.parse(source)
    for function, node in _walk(tree, ""):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            node.body[:0] = ast.parse(f"called.add({f'{module}:{function}'!r})").body
    return ast.unparse(tree)


def _changed(tree: ast.Module, site: _Site) -> str:
    """Return the source with one node replaced; nodes are told by their number in the walk."""
    twin = copy.deepcopy(tree)
    node = list(ast.walk(twin))[site.number]
    return ast.unparse(ast.fix_missing_locations(_Replace(node, site.after).visit(twin)))


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self._old:
            return self._new
        changed: ast.AST = self.generic_visit(node)
        return changed


def _shown(site: _Site) -> str:
    """Return the change as one line, before -> after; long ones are cut around the difference."""
    before, after = (ast.unparse(node).splitlines()[0] for node in (site.before, site.after))
    same = common_length(before, after)
    end = common_length(before[:same:-1], after[:same:-1])
    return f"{_around(before, same, end)} -> {_around(after, same, end)}"


def _around(text: str, start: int, end: int) -> str:
    first, last = max(0, start - _SHOWN), min(len(text), len(text) - end + _SHOWN)
    return f"{'...' * (first > 0)}{text[first:last]}{'...' * (last < len(text))}"


def _sites(tree: ast.Module) -> Iterator[_Site]:
    numbers = {id(node): number for number, node in enumerate(ast.walk(tree))}
    for function, node in _walk(tree, ""):
        for after in _changes(node) if function else ():
            yield _Site(numbers[id(node)], function, node, after)


def _walk(node: ast.AST, function: str) -> Iterator[tuple[str, ast.AST]]:
    """Yield the nodes that may be changed, and the name of their function or class."""
    yield function, node
    for name, value in ast.iter_fields(node):
        if _left_out(node, name) or (isinstance(node, ast.keyword) and node.arg in _GUARDS):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                yield from _walk(child, f"{function}.{child.name}".strip("."))
            elif isinstance(child, ast.AST) and not _is_text(child):
                yield from _walk(child, function)


def _left_out(node: ast.AST, name: str) -> bool:
    return name in ("annotation", "returns", "decorator_list", "bases", "exc", "type_comment") or (
        isinstance(node, ast.ClassDef) and name == "keywords"
    )


def _is_text(node: ast.AST) -> bool:
    """Return a text, or a statement that is one; imports and declarations of types as well."""
    if isinstance(node, ast.Expr):
        return _is_text(node.value)
    return (
        isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom | ast.Nonlocal)
        or (isinstance(node, ast.Constant) and isinstance(node.value, str))
        or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        or (isinstance(node, ast.Assign) and "TypeVar" in ast.unparse(node.value))
    )


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the replacements of one node."""
    for make in _OPERATORS.get(type(node), ()):
        for changed in make(copy.deepcopy(node)):
            yield ast.fix_missing_locations(changed)


def _comparison(node: ast.Compare) -> Iterator[ast.AST]:
    for place, operator in enumerate(node.ops):
        changed = copy.deepcopy(node)
        changed.ops[place] = _COMPARISONS[type(operator)]()
        yield changed


def _arithmetic(node: ast.BinOp | ast.AugAssign) -> Iterator[ast.AST]:
    other = _ARITHMETIC.get(type(node.op))
    if other is not None and not _joins_texts(node):
        node.op = other()
        yield node


def _joins_texts(node: ast.BinOp | ast.AugAssign) -> bool:
    sides = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.value,)
    return any(_is_text(side) for side in sides)


def _number(node: ast.Constant) -> Iterator[ast.AST]:
    if isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node.value, int):
        yield ast.Constant(node.value + 1)
        if node.value > 1:
            yield ast.Constant(node.value - 1)
    elif isinstance(node.value, float):
        yield ast.Constant(node.value * 2 + 1)


def _logic(node: ast.BoolOp) -> Iterator[ast.AST]:
    other = copy.deepcopy(node)
    other.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    yield other
    for place in range(len(node.values)):  # one condition dropped
        rest = [value for at, value in enumerate(node.values) if at != place]
        yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)


def _negation(node: ast.UnaryOp) -> Iterator[ast.AST]:
    if isinstance(node.op, ast.Not | ast.USub):
        yield node.operand


def _condition(node: ast.If | ast.IfExp | ast.While) -> Iterator[ast.AST]:
    for value in (True, False):
        if isinstance(node, ast.While) and value:
            continue  # without an end
        changed = copy.deepcopy(node)
        changed.test = ast.Constant(value)
        yield changed


def _statement(node: ast.Expr | ast.Raise) -> Iterator[ast.AST]:
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Yield | ast.YieldFrom):
        yield ast.Pass()


def _call(node: ast.Call) -> Iterator[ast.AST]:
    if isinstance(node.func, ast.Name) and node.func.id in _TWINS:
        twin = copy.deepcopy(node)
        twin.func = ast.Name(_TWINS[node.func.id], ast.Load())
        yield twin
    plain = [arg for arg in node.args if not isinstance(arg, ast.Starred)]
    if len(plain) == len(node.args) >= 2 and ast.unparse(node.func) not in _UNORDERED:
        swapped = copy.deepcopy(node)
        swapped.args[:2] = swapped.args[1::-1]
        yield swapped
    for place, keyword in enumerate(node.keywords):
        if keyword.arg not in _GUARDS:
            fewer = copy.deepcopy(node)
            del fewer.keywords[place]
            yield fewer


def _slice(node: ast.Slice) -> Iterator[ast.AST]:
    for bound in ("lower", "upper"):
        value = getattr(node, bound)
        if value is not None:
            moved, dropped = copy.deepcopy(node), copy.deepcopy(node)
            setattr(moved, bound, ast.BinOp(value, ast.Add(), ast.Constant(1)))
            setattr(dropped, bound, None)
            yield moved
            yield dropped


def _jump(node: ast.Break | ast.Continue) -> Iterator[ast.AST]:
    yield ast.Continue() if isinstance(node, ast.Break) else ast.Break()


def _return(node: ast.Return) -> Iterator[ast.AST]:
    if node.value is not None and not isinstance(node.value, ast.Constant):
        yield ast.Return(ast.Constant(None))


_OPERATORS: dict[type[ast.AST], tuple[Callable[..., Iterator[ast.AST]], ...]] = {
    ast.Compare: (_comparison,),
    ast.BinOp: (_arithmetic,),
    ast.AugAssign: (_arithmetic,),
    ast.Constant: (_number,),
    ast.BoolOp: (_logic,),
    ast.UnaryOp: (_negation,),
    ast.If: (_condition,),
    ast.IfExp: (_condition,),
    ast.While: (_condition,),
    ast.Expr: (_statement,),
    ast.Raise: (_statement,),
    ast.Call: (_call,),
    ast.Slice: (_slice,),
    ast.Break: (_jump,),
    ast.Continue: (_jump,),
    ast.Return: (_return,),
}
