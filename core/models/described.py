"""One model, described by its files: what they say of it, and what is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from core.errors import CoreError
from core.models.damage import BROKEN_HEADER, cut_gguf, look_at_safetensors, not_gguf, unreadable
from core.models.files import read_config_json
from core.models.gguf import NO_LANGUAGE_MODEL, GgufHeader, read_gguf
from core.models.quantisation import of_config, of_gguf
from core.types import DiscoveredModel

Files: TypeAlias = Sequence[tuple[str, os.stat_result]]

_GGUF_KEYS = ("general.architecture", "general.file_type")
_NOTHING = GgufHeader(0, {})


def safetensors_model(
    files: Files, source: str, problem: str = "", examine: bool = True
) -> DiscoveredModel:
    """The model of a directory with config.json and these safetensors files.

    A ``problem`` that is known already goes before what its headers tell; without ``examine``
    they are not read.
    """
    directory = os.path.dirname(files[0][0])
    config, told = _config(directory)
    stored = ""
    if examine and not problem:
        seen = look_at_safetensors(directory, [os.path.basename(path) for path, _ in files])
        problem, stored = seen.problem or told, seen.stored

    quantisation = of_config(config, stored)
    return DiscoveredModel(
        directory,
        _model_type(config),
        quantisation.bits,
        quantisation.group,
        len(files),
        "safetensors",
        sum(found.st_size for _, found in files),
        source,
        quantisation=quantisation.name,
        modified=max(found.st_mtime for _, found in files),
        problem=problem,
    )


def gguf_model(
    files: Files, source: str, problem: str = "", examine: bool = True
) -> Iterator[DiscoveredModel]:
    """The language model in these GGUF files, the first one first, if it is one."""
    first = files[0][0]
    header = _first_keys(first)
    if examine and not problem:
        problem, header = _look_at_gguf([path for path, _ in files], header)
    metadata = header.metadata
    architecture = metadata.get("general.architecture")
    if architecture == "clip" or metadata.get("general.type") in NO_LANGUAGE_MODEL:
        return

    quantisation = of_gguf(metadata, header.tensors)
    yield DiscoveredModel(
        first,
        architecture if isinstance(architecture, str) else "",
        quantisation.bits,
        quantisation.group,
        len(files),
        "gguf",
        sum(found.st_size for _, found in files),
        source,
        quantisation=quantisation.name,
        modified=max(found.st_mtime for _, found in files),
        problem=problem,
    )


def _first_keys(path: str) -> GgufHeader:
    try:
        return read_gguf(path, only=_GGUF_KEYS)
    except CoreError:
        return _NOTHING


def _look_at_gguf(paths: Sequence[str], known: GgufHeader) -> tuple[str, GgufHeader]:
    """What is wrong with one of these files, and the first one's header as far as it is read."""
    first = known
    for number, path in enumerate(paths):
        try:
            if words := not_gguf(path):
                return words, first
            header = read_gguf(path, tensors=True, cut_off=True)
            problem = cut_gguf(path, header)
        except CoreError as error:
            return unreadable(error), first
        except OSError:
            return "unreadable", first
        first = first if number else header
        if problem:
            return problem if len(paths) == 1 else f"{problem}: {os.path.basename(path)}", first
    return "", first


def _config(directory: str) -> tuple[dict[str, object], str]:
    """A model's config.json, and what is wrong with it."""
    try:
        return read_config_json(directory), ""
    except CoreError as error:
        words = unreadable(error)
        return {}, "broken config.json" if words == BROKEN_HEADER else words


def _model_type(config: dict[str, object]) -> str:
    for candidate in (config, config.get("text_config")):
        if isinstance(candidate, dict):
            name = candidate.get("model_type")
            if isinstance(name, str) and name:
                return name
    return ""
