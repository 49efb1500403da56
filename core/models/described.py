"""Description of one model by its files: their facts and their damage."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from typing import TypeAlias

from core.errors import CoreError
from core.models.damage import (
    BROKEN_HEADER,
    INCOMPLETE,
    cut_gguf,
    finished_name,
    look_at_safetensors,
    missing_shards,
    not_gguf,
    unreadable,
)
from core.models.files import read_config_json
from core.models.gguf import NO_LANGUAGE_MODEL, GgufHeader, read_gguf
from core.models.quantisation import of_config, of_gguf
from core.models.weight_files import INDEX, weight_files
from core.types import DiscoveredModel

Files: TypeAlias = Sequence[tuple[str, os.stat_result]]

_GGUF_KEYS = ("general.architecture", "general.file_type")
_NOTHING = GgufHeader(0, {})


def safetensors_model(
    files: Files, source: str, partly: Collection[str] = (), examine: bool = True
) -> DiscoveredModel:
    """Return the model of a directory with config.json and these safetensors files.

    The files that hold the model are counted (`core.models.weight_files`), or all of them if none
    does. ``partly`` names the files that are still being downloaded. Without ``examine`` no header
    is read.
    """
    directory = os.path.dirname(files[0][0])
    named = {}
    for path, found in files:
        name = os.path.basename(path)
        named[finished_name(name) or name] = path, found
    own, problem = _own(directory, named, partly)
    shown = [named[name] for name in own] or list(named.values())

    config, config_problem = _config(directory)
    stored = ""
    if examine and not problem:
        seen = look_at_safetensors(directory, own)
        problem, stored = seen.problem or config_problem, seen.stored
    return _safetensors(directory, shown, source, problem, config, stored)


def pickled_model(files: Files, source: str) -> DiscoveredModel:
    """Return the model of a directory with config.json whose only weights are pickles."""
    directory = os.path.dirname(files[0][0])
    only = os.path.basename(min(files)[0])
    problem = f"no safetensors, only {only}"
    return _safetensors(directory, files, source, problem, _config(directory)[0])


def _own(directory: str, names: Collection[str], partly: Collection[str]) -> tuple[list[str], str]:
    """Return the names of the model's existing files, and the problem of the set."""
    try:
        chosen = weight_files(directory, names)
    except CoreError:
        return [], f"broken {INDEX}"
    own = [name for name in chosen.own if name in names]
    if any(name in partly for name in own):
        return own, INCOMPLETE
    missing = missing_shards(len(chosen.missing), len(chosen.own)) if chosen.missing else ""
    return own, chosen.problem or missing


def _safetensors(
    directory: str,
    files: Files,
    source: str,
    problem: str,
    config: dict[str, object],
    stored: str = "",
) -> DiscoveredModel:
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
    """Yield the language model in these GGUF files, the first one first, if it is one."""
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
    """Return what is wrong with one of these files, and the first one's header as far as it is
    read.
    """
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
    """Return a model's config.json, and its problem."""
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
