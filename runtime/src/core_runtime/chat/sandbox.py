"""Chat templates in jinja's sandbox: the names that a template can use, and its limits.

It runs in a separate process (`core_runtime.chat.worker`), where time and memory are limited, and
imports nothing of `core`. Names and filters are the ones that transformers provides
(``utils/chat_template_utils.py``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Sized
from datetime import datetime
from functools import lru_cache
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.meta import find_undeclared_variables
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

MAX_STEPS = 200_000
"""Loop turns and calls that one rendering may take."""
MAX_LENGTH = 10_000_000
"""Characters or items that one repetition may make, and characters of a prompt."""


_EVERY_TEMPLATES = ("messages", "add_generation_prompt", "strftime_now")


class TemplateFailed(Exception):
    """The error of a template, with a message for the user."""


@lru_cache(maxsize=16)
def compiled(source: str) -> Template:
    """Return the compiled template. Raises `TemplateFailed`."""
    try:
        return _Environment().from_string(source)
    except MemoryError:
        raise
    except Exception as error:  # jinja's errors, and Python's for the generated code
        raise TemplateFailed(f"The model's chat template is broken: {_reason(error)}.") from error


@lru_cache(maxsize=16)
def names_read(source: str) -> tuple[str, ...]:
    """Return the variables that a template reads, without the ones of every template.

    As in jinja, a variable that the template sets on some but not all paths counts, too.
    Raises `TemplateFailed`.
    """
    environment = compiled(source).environment
    names = find_undeclared_variables(environment.parse(source))
    return tuple(sorted(names.difference(environment.globals, _EVERY_TEMPLATES)))


def rendered(
    template: Template,
    messages: Sequence[object],
    variables: Mapping[str, object],
    now: datetime,
    asks: bool = True,
) -> str:
    """Return the text of a conversation at the time ``now``. Raises `TemplateFailed`.

    With ``asks`` it ends where the assistant's next turn begins, otherwise with the last message.
    """
    assert isinstance(template.environment, _Environment)
    template.environment.steps = 0

    try:
        text = template.render(
            {
                # Defined, because many templates only test whether they are none.
                **{"tools": None, "documents": None, "strftime_now": now.strftime},
                **variables,
                **{"messages": messages, "add_generation_prompt": asks},
            }
        )
    except MemoryError:
        raise
    except Exception as error:  # a template is a program: it may raise anything
        raise TemplateFailed(
            f"The model's chat template failed on these messages: {_reason(error)}"
        ) from error

    if len(text) > MAX_LENGTH:
        raise TemplateFailed(f"The model's chat template wrote {len(text)} characters.")
    return text


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, with a limit on steps and on the results of ``*`` and ``**``."""

    intercepted_binops = frozenset({"*", "**"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        self.filters["tojson"] = _tojson
        self.globals["raise_exception"] = _raise_exception
        self.globals["namespace"] = _Namespace
        self.steps = 0

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(nodes.For):
            turn = nodes.Call(nodes.EnvironmentAttribute("loop_turn"), [], [], None, None)
            loop.body.insert(0, nodes.ExprStmt(turn))
        return tree

    @staticmethod
    def loop_turn() -> None:
        """Do nothing: called in each turn of a loop, so that `call` counts it."""

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise SecurityError(f"it takes more than {MAX_STEPS} steps")
        if obj is _Environment.loop_turn:
            return None
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if _result_size(operator, left, right) > MAX_LENGTH:
            raise SecurityError(f"the result of {operator} is too large")
        return super().call_binop(context, operator, left, right)


def _result_size(operator: str, left: Any, right: Any) -> int:
    """Return the size of a result of ``*`` or ``**``: items, or bits of an integer."""
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length()
        return bits * right if operator == "**" else bits + right.bit_length()
    for items, times in ((left, right), (right, left)):
        if isinstance(items, Sized) and isinstance(times, int):
            return len(items) * times
    return 0


class _Namespace(Namespace):
    """A namespace without names that begin with an underscore, as in transformers."""

    def __init__(self, /, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise SecurityError(f"a namespace may not hold the name {name!r}")
        super().__setitem__(name, value)


class _Generation(Extension):
    """The tag ``{% generation %}``, which marks text for training; here only its body counts."""

    tags = {"generation"}  # noqa: RUF012 - the base class has it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _reason(error: Exception) -> str:
    return f"{error!s:.500}" or type(error).__name__
