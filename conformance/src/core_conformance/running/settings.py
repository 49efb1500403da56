"""Settings of a run: the table ``[tool.core-conformance]``, and the options that win over it.

::

    [tool.core-conformance]
    backend = "mine"
    model = "models/tiny"             # relative to this file
    timeout = 60                      # seconds for each check
    isolate = false
    prompts = ["Il était une fois", ...]  # six at least, which the model continues: in its language
    labels = ["bon", "mauvais", ...]      # three at least; both or neither
    adapters = "tests/adapters"       # a folder with the LoRA adapters one, two and wrong

    [tool.core-conformance.options]   # load options: core's, and the backend's own
    context_len = 512
    threads = 2

    [tool.core-conformance.known-failures]
    "stream.some-check" = "why, and a link to the issue"
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import SystemRandom
from typing import Any

import msgspec
import msgspec.structs

from core.models.files import is_address
from core.models.locating import locate
from core.system.limited_files import Refused, read_limited, toml_table
from core_conformance.checking.check import generated
from core_conformance.checking.material import Material
from core_conformance.checking.subject import Effort
from core_conformance.running import known
from core_conformance.running.known import UsageError
from core_conformance.running.target import Target

TABLE = "core-conformance"
_TURN = 60.0  # seconds of a generated check, where all of them take turns without end


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a run; None means not set.

    ``only`` says which checks: ids, areas or patterns; all of them where it is empty.
    """

    backend: str | None = None
    model: str | None = None
    options: Mapping[str, object] = field(default_factory=dict, repr=False)
    known: Mapping[str, str] | None = None
    timeout: float | None = None
    isolate: bool | None = None
    only: tuple[str, ...] = ()
    material: Material | None = None
    seed: int | None = None
    deep: float | None = None
    adapters: str | None = None

    def over(self, other: Settings) -> Settings:
        """Return these settings, completed by those of ``other``.

        The other's settings are for its own backend: where these name a different one, they do not
        apply.
        """
        if self.backend and other.backend and self.backend != other.backend:
            return self

        return Settings(
            self.backend or other.backend,
            self.model or other.model,
            {**other.options, **self.options},
            other.known if self.known is None else self.known,
            other.timeout if self.timeout is None else self.timeout,
            other.isolate if self.isolate is None else self.isolate,
            self.only or other.only,
            self.material or other.material,
            other.seed if self.seed is None else self.seed,
            other.deep if self.deep is None else self.deep,
            self.adapters or other.adapters,
        )

    def target(self) -> Target:
        """Return the backend and model. Raises `UsageError` if one is not named."""
        if not self.backend:
            raise UsageError(_unnamed("backend", "--core-backend NAME"))
        if not self.model:
            raise UsageError(_unnamed("model", "--core-model PATH (infer-cli: -m PATH)"))
        model, adapters = locate(self.model), self.adapters
        return Target(self.backend, model, self.options, self.material, self.effort(), adapters)

    def effort(self) -> Effort:
        """Return the effort of each check. A deep run without a seed draws one."""
        if self.deep is None:
            return Effort(seed=self.seed or 0)
        seed = random_seed() if self.seed is None else self.seed
        share = self.deep / max(1, len(generated()))
        return Effort(share if math.isfinite(share) else _TURN, seed=seed, deep=True)


class _Table(
    msgspec.Struct, rename="kebab", forbid_unknown_fields=True, frozen=True, omit_defaults=True
):
    backend: str | None = None
    model: str | None = None
    timeout: float | None = None
    isolate: bool | None = None
    prompts: tuple[str, ...] | None = None
    labels: tuple[str, ...] | None = None
    adapters: str | None = None
    options: dict[str, Any] = {}
    known_failures: dict[str, Any] | None = None


def nearest_table(start: Path) -> Settings:
    """Return the table in the nearest ``pyproject.toml`` from a folder upwards.

    Raises `UsageError`.
    """
    for folder in (start, *start.parents):
        file = folder / "pyproject.toml"
        if file.is_file():
            return _read(file)
    return Settings()


def pairs(texts: Sequence[str]) -> dict[str, object]:
    """Parse ``K=V`` texts; V is read as JSON (3, true, "3"), or as text if not valid JSON."""
    options: dict[str, object] = {}
    for number, text in enumerate(texts, 1):
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(
                f"Option {number} is not K=V. It is not shown, as it may be a secret key."
            )
        if name in options:
            raise UsageError(f"The option {name!r} is given twice.")
        options[name] = _value(value)
    return options


def random_seed() -> int:
    """Return a seed for a run that was given none."""
    return SystemRandom().randrange(2**31)


def deep(value: float) -> float:
    """Return the seconds for the generated checks, or inf; raise `UsageError` for 0 or less."""
    if not value > 0:
        raise UsageError(
            f"--deep {value:g} is not valid: expected a number of seconds above 0, or inf."
        )
    return value


def seconds(value: float) -> float:
    """Return a time limit; raises `UsageError` for one that ends nothing or everything."""
    if not value > 0 or math.isinf(value):
        raise UsageError(
            f"The time limit {value:g} s is not valid: expected a finite number of seconds above 0."
        )
    return value


def _read(file: Path) -> Settings:
    try:
        tools = toml_table(read_limited(file, known.MOST_BYTES)).get("tool")
        settings = tools.get(TABLE) if isinstance(tools, dict) else None
        table = msgspec.convert({} if settings is None else settings, _Table)
        material = _material(table)
    except msgspec.ValidationError as error:
        keys = ", ".join(field.encode_name for field in msgspec.structs.fields(_Table))
        raise UsageError(
            f"[tool.{TABLE}] of {file} cannot be used: {error}. Valid keys: {keys}."
        ) from error
    except (OSError, ValueError, Refused) as error:
        raise UsageError(f"[tool.{TABLE}] of {file} cannot be used: {error}") from error

    # Paths are relative to the file that names them.
    def placed(path: str | None) -> str | None:
        if not path or is_address(path):
            return path
        return str(file.parent / Path(path).expanduser())

    place = f"[tool.{TABLE}.known-failures] of {file}"
    return Settings(
        table.backend,
        placed(table.model),
        table.options,
        None if table.known_failures is None else known.flat(table.known_failures, place),
        None if table.timeout is None else seconds(table.timeout),
        table.isolate,
        material=material,
        adapters=placed(table.adapters),
    )


def _material(table: _Table) -> Material | None:
    """Return the author's own prompts and labels; raises ValueError for one without the other."""
    if table.prompts is None and table.labels is None:
        return None
    return Material(table.prompts or (), table.labels or ())


def _value(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text


def _unnamed(what: str, flag: str) -> str:
    return f"No {what} to check. Give {flag}, or {what} = ... in [tool.{TABLE}] of pyproject.toml."
