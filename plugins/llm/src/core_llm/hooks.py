"""The hooks of this plugin, which every start of ``llm`` calls: nothing is loaded for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import llm

from core.models.stores import discover_stores
from core.types import DiscoveredModel

if TYPE_CHECKING:
    import click


@llm.hookimpl
def register_models(register: Callable[..., None]) -> None:
    """Register every model that ``infer-cli discover`` lists, by its name and its short names."""
    from core_llm.models import AsyncCoreModel, CoreModel

    models = discover_stores(examine=False)
    for model, name, aliases in named(models):
        register(
            CoreModel(f"core/{name}", model.handle),
            AsyncCoreModel(f"core/{name}", model.handle),
            aliases=tuple(f"core/{alias}" for alias in aliases),
        )


@llm.hookimpl
def register_commands(cli: click.Group) -> None:
    """Add ``llm classify``."""
    from core_llm.classify import classify

    cli.add_command(classify)


def named(
    models: Sequence[DiscoveredModel],
) -> Iterator[tuple[DiscoveredModel, str, tuple[str, ...]]]:
    """Yield each model with its registered name, and its other unique names.

    The others are its names in its store, and the beginnings of the last part of its name up to a
    hyphen, in lower case: "smollm2" and "smollm2-135m" for "SmolLM2-135M-Instruct".
    """
    wanted = [dict.fromkeys((*model.names, *_beginnings(model.name))) for model in models]
    first = Counter(model.name for model in models)
    claims = Counter(name for names in wanted for name in names)
    for model, names in zip(models, wanted, strict=True):
        name = model.name if first[model.name] == 1 else model.path.lstrip("/")
        yield model, name, tuple(n for n in names if claims[n] == 1 and n != name)


def _beginnings(name: str) -> Iterator[str]:
    last = name.rsplit("/", 1)[-1].casefold().removesuffix(".gguf")
    parts = last.split("-")
    return ("-".join(parts[:end]) for end in range(1, len(parts) + 1))
