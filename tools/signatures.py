"""Write the modules whose methods repeat signatures of core/protocols.py and core/extensions.py.

``python tools/signatures.py --write`` writes core/kit/operations.py, base classes of models, and
core/aio/operations.py, the same operations for asyncio. A test compares them with the protocols.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "core" / "protocols.py", ROOT / "core" / "extensions.py"
# The protocols of backends and of streams, and those of models whose methods run no request.
OTHERS = {
    "Adapting", "AsyncStream", "Asynchronous", "Backend", "Declaring", "Deferring",
    "DeviceReporting", "Explaining", "ModelFinding", "ModelProbe", "TokenStream", "Trainable",
}  # fmt: skip


@dataclass(frozen=True)
class Operation:
    """A method of a protocol."""

    protocol: str
    function: ast.FunctionDef

    @property
    def name(self) -> str:
        """The name of the method."""
        return self.function.name

    @property
    def capability(self) -> str:
        """The name of its member of `core.Capability`."""
        name = self.name if self.protocol == "TextModel" else self.protocol
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()

    @property
    def positional(self) -> list[ast.arg]:
        """The parameters before ``config``."""
        arguments = [*self.function.args.posonlyargs, *self.function.args.args]
        return [argument for argument in arguments if argument.arg not in ("self", "config")]

    @property
    def takes_config(self) -> bool:
        """True if it takes options."""
        return "config:" in self.parameters

    @property
    def known(self) -> str:
        """The type of its keywords; without any, those that its config stands for."""
        annotation = self.function.args.kwarg and self.function.args.kwarg.annotation
        return ast.unparse(annotation)[len("Unpack[") : -1] if annotation else "GenerateOptions"

    @property
    def parameters(self) -> str:
        """The parameters, as written."""
        return ast.unparse(self.function.args)

    @property
    def returned(self) -> str:
        """The annotation of the result."""
        return ast.unparse(self.function.returns) if self.function.returns else "None"

    @property
    def docstring(self) -> str:
        """The first line of its docstring, and where the rest is."""
        summary = (ast.get_docstring(self.function) or "").partition("\n")[0]
        return f'"""{summary}\n\n        See `core.{self.protocol}.{self.name}`.\n        """'


def operations() -> Iterator[Operation]:
    """Yield the operations of all protocols, in the order of the sources."""
    for node in (node for path in SOURCES for node in ast.parse(path.read_text("utf-8")).body):
        if isinstance(node, ast.ClassDef) and node.name not in {*OTHERS, "Capability"}:
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and _is_operation(method):
                    yield Operation(node.name, method)


def _is_operation(method: ast.FunctionDef) -> bool:
    return not (method.decorator_list or method.name.startswith("_") or method.name == "close")


KIT = '''\
"""The operations of a model with their signatures: one class for each protocol.

Each method combines config and keywords into one `GenerateConfig`, and calls the method that a
subclass implements: ``classify(prompts, ...)`` calls ``do_classify(prompts, request)``.

Generated from core/protocols.py and core/extensions.py by tools/signatures.py.
"""
{imports}
OPERATIONS: Mapping[str, tuple[Capability, type]] = {ENTRIES}
"""The capability of each operation, and the type of its keywords."""


class Operations:
    """Base of the classes below."""

    def resolve_request(
        self, operation: str, config: GenerateConfig | None, options: object
    ) -> GenerateConfig:
        """Return the options of a call. Raises for invalid and for unsupported ones."""
        raise NotImplementedError

    def unsupported(self, capability: Capability) -> CoreError:
        """Return the error of an operation that a subclass does not implement."""
        raise NotImplementedError
'''


def kit() -> str:
    """Return the source of core/kit/operations.py."""
    methods = [operation for operation in operations() if operation.takes_config]
    entries = ", ".join(
        f'"{method.name}": (Capability.{method.capability}, {method.known})' for method in methods
    )
    parts, protocol = [KIT.replace("ENTRIES", entries)], ""
    for operation in methods:
        if operation.protocol != protocol:
            protocol = operation.protocol
            parts.append(f"class {protocol}Operations(Operations):")
            parts.append(f'    """The operations of `core.{protocol}` that take options."""')
        parts.append(_kit_method(operation))
    return _formatted(
        "\n\n".join(parts),
        "from core.errors import CoreError",
        "from collections.abc import Mapping",
    )


def _kit_method(operation: Operation) -> str:
    name, returned, args = operation.name, operation.returned, operation.function.args
    typed = [*map(ast.unparse, operation.positional), "request: GenerateConfig"]
    typed += map(ast.unparse, args.kwonlyargs)
    names = ", ".join(parameter.partition(":")[0] for parameter in typed)
    keywords = "options" if args.kwarg else "{}"
    return f"""\
    def {name}({operation.parameters}) -> {returned}:
        {operation.docstring}
        request = self.resolve_request("{name}", config, {keywords})
        return self.do_{name}({names})

    def do_{name}(self, {", ".join(typed)}) -> {returned}:
        \"""Run ``{name}`` with these options.\"""
        raise self.unsupported(Capability.{operation.capability})
"""


AIO = '''\
"""The operations of a model with their signatures, for asyncio.

Generated from core/protocols.py and core/extensions.py by tools/signatures.py.
"""
{imports}
@all_options_named
class AsyncOperations:
    """The methods of `core.aio.AsyncModel`, all of which call one of these three."""

    async def _call(self, operation: str, /, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError

    def _tokens(self, operation: str, /, *arguments: Any, **options: Any) -> AsyncTokens:
        raise NotImplementedError

    def _items(self, operation: str, /, *arguments: Any, **options: Any) -> AsyncItems[Any]:
        raise NotImplementedError
'''


def aio() -> str:
    """Return the source of core/aio/operations.py."""
    return _formatted(
        "\n\n".join([AIO, *map(_aio_method, operations())]),
        "from typing import Any",
        "from collections.abc import AsyncIterable",
        "from core.aio.streams import AsyncItems, AsyncTokens",
        "from core.options import all_options_named",
    )


def _aio_method(operation: Operation) -> str:
    args, returned = operation.function.args, operation.returned
    passed = [f'"{operation.name}"', *(argument.arg for argument in operation.positional)]
    passed += ["config"] * operation.takes_config
    passed += [f"{argument.arg}={argument.arg}" for argument in args.kwonlyargs]
    passed += ["**options"] * (args.kwarg is not None)
    call = f"({', '.join(passed)})"
    if returned == "TokenStream":
        kind, returned, body = "def", "AsyncTokens", f"return self._tokens{call}"
    elif returned.startswith("Iterator["):
        kind, returned = "def", f"Async{returned.replace('Iterator', 'Items', 1)}"
        body = f"return self._items{call}"
    else:
        kind = "async def"
        body = f"result: {returned} = await self._call{call}\n        return result"
        body = f"await self._call{call}" if returned == "None" else body
    parameters = re.sub(r"(?<=: )(Iterable\[\w+\])", r"\1 | Async\1", operation.parameters)
    return f"""\
    {kind} {operation.name}({parameters}) -> {returned}:
        {operation.docstring}
        {body}
"""


def _formatted(text: str, *imports: str) -> str:
    """Return a module with the imports that it needs, as ruff sorts and formats it."""
    lines = ["\nfrom __future__ import annotations", *imports]
    for path in SOURCES:
        tree = ast.parse(path.read_text("utf-8"))
        lines += [ast.unparse(node) for node in tree.body if isinstance(node, ast.ImportFrom)]
        classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        lines.append(f"from core.{path.stem} import {', '.join(classes)}")
    text = text.replace("{imports}", "\n".join([*dict.fromkeys(lines), "", ""]))
    for command in (["check", "--select=I,F401,F811", "--fix-only"], ["format"]):
        stdin = ["--quiet", "--stdin-filename=core/operations.py", "-"]
        command = [sys.executable, "-m", "ruff", *command, *stdin]
        run = subprocess.run(
            command, cwd=ROOT, input=text, stdout=subprocess.PIPE, check=True, text=True
        )
        text = run.stdout
    return text


FILES = {
    ROOT / "core" / "kit" / "operations.py": kit,
    ROOT / "core" / "aio" / "operations.py": aio,
}


def main() -> None:
    """Report the files that are out of date, or write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the files")
    write = parser.parse_args().write
    for path, source in FILES.items():
        if write:
            path.write_text(source(), encoding="utf-8")
        elif path.read_text("utf-8") != source():
            print(f"{path.relative_to(ROOT)} is out of date. Run tools/signatures.py --write.")


if __name__ == "__main__":
    main()
