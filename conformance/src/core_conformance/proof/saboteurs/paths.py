"""Saboteurs that open some paths."""

from __future__ import annotations

import os

from core.errors import ModelNotFoundError
from core.options import LoadConfig
from core_conformance.proof.registry import saboteur
from core_conformance.reference.backend import Reference
from core_conformance.reference.optional import ReferenceModel

Path = str | os.PathLike[str]


@saboteur("paths-are-ascii", "a path is handed on as ASCII")
class PathsAreAscii(Reference):
    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        if os.fspath(path).isascii() or not os.fspath(path).isprintable():
            return super().load_model(path, config)
        raise UnicodeEncodeError("ascii", os.fspath(path), 0, 1, "ordinal not in range(128)")


@saboteur("links-are-not-followed", "what is a link is not a model")
class LinksAreNotFollowed(Reference):
    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        parts = os.fspath(path).split(os.sep)
        if any(os.path.islink(os.sep.join(parts[:end])) for end in range(2, len(parts) + 1)):
            raise ModelNotFoundError(f"Model not found: {path!s}. Copy it there.")
        return super().load_model(path, config)


@saboteur("path-is-looked-up-later", "a relative path is opened again when it is needed")
class PathIsLookedUpLater(Reference):
    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        model = super().load_model(path, config)
        read = model.engine.prompt_ids

        def opened(prompt: str) -> list[int]:
            os.stat(path)
            return read(prompt)

        model.engine.prompt_ids = opened  # type: ignore[method-assign]
        return model


@saboteur(
    "paths-are-utf8",
    "a path is handed on as UTF-8: so it was in mlx_cpu at commit 77e22b6, where it ended as "
    "std::bad_cast",
)
class PathsAreUtf8(Reference):
    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        os.fspath(path).encode()
        return super().load_model(path, config)
