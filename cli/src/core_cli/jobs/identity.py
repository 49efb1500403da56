"""The identity of a job: what must be equal when it is resumed, without secrets."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

import core
from core.models.fingerprint import fingerprint_of
from core_cli.suggestions import public_pairs

if TYPE_CHECKING:
    from core.options import GenerateConfig
    from core_cli.flags import RowFlags
    from core_cli.loading import Loaded


_SHOWN = 60
_FLAGS = {
    "form": "--format",
    **{
        name: f"--{name.replace('_', '-')}"
        for name in (
            *("labels", "template", "encoding", "field", "id_field", "keep", "limit", "chat"),
            *("system", "truncate", "dedupe", "min_margin", "shard", "opening", "new_turn"),
            *("allow_blank", "to"),
        )
    },
}


def identity(
    command: str, flags: RowFlags, template: str | None, config: GenerateConfig
) -> dict[str, Any]:
    """Return the facts that must be equal when the job is resumed, for JSON."""
    settings = {field.name: getattr(config, field.name) for field in fields(config)}
    options = {name: value for name, value in settings.items() if name not in ("cancel", "labels")}
    return _plain(
        {
            "core": core.__version__,
            "command": command,
            "input": _digest_of(flags.file),
            "labels": list(config.labels),
            "template": template,
            "form": flags.form,
            "encoding": flags.encoding,
            "field": flags.field,
            "id_field": flags.id_field,
            "keep": flags.keep,
            "limit": flags.limit,
            "chat": flags.chat,
            "system": flags.system,
            "truncate": flags.truncate,
            "dedupe": flags.dedupe,
            "min_margin": flags.min_margin,
            "shard": flags.shard,
            "opening": flags.opening,
            "new_turn": flags.new_turn,
            "allow_blank": flags.allow_blank,
            "options": options,
            "load options": {**flags.load_options(), "option": public_pairs(flags.pairs)},
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
    before, after = map(_shown, _differing(known.get(name), now[name]))
    difference = (
        "has changed" if name in ("input", "model") else f"changed from {before} to {after}"
    )
    raise click.UsageError(
        f"Cannot resume {output}: {_FLAGS.get(name, name)} {difference}. Restore the original "
        "value, or start over with --overwrite."
    )


def _differing(before: object, after: object) -> tuple[object, object]:
    """Return two values, or two mappings of options without what is equal in both."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return before, after
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return {name: before.get(name) for name in names}, {name: after.get(name) for name in names}


def _public(load_options: object) -> object:
    """Return the load options of a journal; older ones may hold a key."""
    if not isinstance(load_options, dict) or not isinstance(load_options.get("option"), list):
        return load_options
    return {**load_options, "option": public_pairs(map(str, load_options["option"]))}


def _digest_of(name: str | None) -> str:
    """Return a digest of the complete input (about 1 GB per second)."""
    assert name is not None  # -o requires -i
    with open(name, "rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _plain(facts: dict[str, Any]) -> dict[str, Any]:
    import json

    plain: dict[str, Any] = json.loads(json.dumps(facts, default=str))
    return plain


def _shown(value: object) -> str:
    text = _words(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _words(value: object) -> str:
    """Return a value of a flag as its user would say it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_words(own)}" for name, own in value.items())
    if isinstance(value, list):
        return ", ".join(map(_words, value)) or "none"
    return repr(value)
