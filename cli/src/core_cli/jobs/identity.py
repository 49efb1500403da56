"""The identity of a job: the input, the model, and all else that its answers depend on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

import core
from core.models.fingerprint import fingerprint_of
from core_cli.secret_arguments import public_pairs

if TYPE_CHECKING:
    from core.options import GenerateConfig
    from core_cli.loading import Loaded

_SHOWN = 60
_FLAGS = (
    *("form", "field", "id_field", "keep", "limit", "chat", "system", "truncate", "dedupe"),
    *("min_margin", "shard", "opening", "new_turn", "allow_blank"),
)


def identity(
    command: str, flags: Mapping[str, Any], template: str | None, config: GenerateConfig
) -> dict[str, Any]:
    """Return the facts that must be equal when the job is resumed, for JSON."""
    asked = {field.name: getattr(config, field.name) for field in fields(config)}
    options = {name: value for name, value in asked.items() if name not in ("cancel", "labels")}
    return _plain(
        {
            "core": core.__version__,
            "command": command,
            "input": _digest_of(flags["file"]),
            "labels": list(config.labels),
            "template": template,
            **{name: flags.get(name) for name in _FLAGS},
            "options": options,
            "load options": {**_load_flags(flags), "option": public_pairs(flags["pairs"])},
        }
    )


def of_model(loaded: Loaded) -> dict[str, Any]:
    """Return the identity of the model, by the content of its files and its adapter's."""
    return {"model": fingerprint_of(loaded.model), "backend": loaded.backend.name}


def check(known: Mapping[str, Any], now: Mapping[str, Any], output: str) -> None:
    """Raise `click.UsageError` naming a fact that changed since the job began."""
    known = {**known, "load options": _public(known.get("load options"))}
    changed = [name for name in now if known.get(name) != now[name]]
    if not changed:
        return
    name = changed[0]
    before, after = _shown(known.get(name)), _shown(now[name])
    told = "has changed" if name in ("input", "model") else f"changed from {before} to {after}"
    raise click.UsageError(
        f"Cannot resume {output}: {name} {told}. Restore the original value, or start over with "
        "--overwrite."
    )


def _public(load_options: object) -> object:
    """Return the load options of a journal; older ones may hold a key."""
    if not isinstance(load_options, dict) or not isinstance(load_options.get("option"), list):
        return load_options
    return {**load_options, "option": public_pairs(map(str, load_options["option"]))}


def _load_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    from core_cli.settings import LOAD

    return {name: flags[name] for name in LOAD if name != "backend"}


def _digest_of(name: str) -> str:
    """Return a digest of the complete input (about 1 GB per second)."""
    with open(name, "rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _plain(facts: dict[str, Any]) -> dict[str, Any]:
    import json

    plain: dict[str, Any] = json.loads(json.dumps(facts, default=str))
    return plain


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
