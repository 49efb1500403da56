"""Models of `core` over the rows of a Ray Dataset: one model per actor, answers as columns.

::

    rows = ray.data.read_parquet("s3://bucket/news/")
    answers = core_ray.classify(rows, model=path, labels=["finance", "sports"])
    answers.write_parquet("s3://bucket/labelled/")
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core_ray.datasets import classify, generate
    from core_ray.errors import ActorLoadError, PoisonedRowError

__all__ = ["ActorLoadError", "PoisonedRowError", "classify", "generate"]

_HOMES = {"classify": "datasets", "generate": "datasets"}


def __getattr__(name: str) -> object:
    """Return a public name, imported on first use: every start of infer-cli imports the hooks."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"core_ray.{_HOMES.get(name, 'errors')}"), name)
