"""Shell completion of the names of models and backends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem


def models(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the models that ``discover`` lists; files if no name has this prefix."""
    matches = _beginning(incomplete, _names())
    return matches or _file(incomplete)


def backends(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the backends that are installed."""
    from core.registry import REGISTRY

    return _beginning(incomplete, REGISTRY.names())


def _names() -> Iterator[str]:
    import core.registry  # noqa: F401 - its backends describe models in other formats
    from core.models.stores import discover_stores

    return (model.name for model in discover_stores(examine=False) if model.names)


def _beginning(incomplete: str, names: Iterable[str]) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _file(incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]
