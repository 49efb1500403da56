"""The identity of a job, and the commands to run next, without secrets."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

import core
from core.models.fingerprint import fingerprint_of
from core.secret import holds_secret, is_secret
from core_cli.flags import value_of
from core_cli.rows.checks import template_of_rows
from core_tasks.template import TEXT

if TYPE_CHECKING:
    from core.options import GenerateConfig
    from core_cli.flags import RowFlags
    from core_cli.loading import Loaded


_SHOWN = 60


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
        f"Cannot resume {output}: {name} {difference}. Restore the original value, or start over "
        "with --overwrite."
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
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


_KEY = "api_key"
_VARIABLE = "CORE_REMOTE_API_KEY"
_FLAG, _FLAG_AND_EQUALS = "--option", "--option="
_SHORT = re.compile("-[A-Za-z]*O")  # other short flags may precede it


def public_pairs(pairs: Iterable[str]) -> list[str]:
    """Return the ``K=V`` pairs of ``-O`` without those that are secret."""
    return [pair for pair in pairs if not _is_secret(pair)]


def public_arguments(arguments: Sequence[str]) -> tuple[list[str], str]:
    """Return the arguments of the current command, and a prefix for its name.

    An API key is replaced by its environment variable, which ``ps`` does not show. Any other
    secret is shown as ``NAME=...``.
    """
    context = click.get_current_context(silent=True)
    pairs = (context.params.get("pairs") if context else None) or ()
    secret = [pair for pair in pairs if _is_secret(pair)]
    shown: list[str] = []
    for argument in arguments:
        pair = next(filter(argument.endswith, secret), None)
        if pair is None:
            shown.append(argument)
            continue
        flag = argument.removesuffix(pair) or (shown.pop() if shown else "")
        if flag not in (_FLAG, _FLAG_AND_EQUALS) and _SHORT.fullmatch(flag) is None:
            shown.append(flag)  # not an option: the same text elsewhere
            shown.append("...")
            continue
        if _SHORT.fullmatch(flag) and flag != "-O":
            shown.append(flag[:-1])
        if _name(pair) != _KEY:
            shown += ["-O", f"{_name(pair)}=..."]
    has_key = any(_name(pair) == _KEY for pair in secret)
    return shown, f'{_VARIABLE}="${_VARIABLE}" ' if has_key else ""


def _is_secret(pair: str) -> bool:
    """Return whether a ``K=V`` pair is or contains a secret; V may be JSON, as ``-O`` reads it."""
    name, _, text = pair.partition("=")
    return is_secret(name) or holds_secret(name, value_of(text))


def _name(pair: str) -> str:
    return pair.partition("=")[0]


def command_to_go_on() -> str:
    """Return the command line that resumes this run."""
    # After a "--" the flag would be a prompt; no prompts are given with -i.
    dropped = ("--overwrite", "--resume", "--")
    arguments, variables = public_arguments(sys.argv[1:])
    remaining = [argument for argument in arguments if argument not in dropped]
    return variables + " ".join(map(quoted, ["infer-cli", *remaining, "--resume"]))


def calibrate_command(flags: RowFlags) -> str | None:
    """Return the ``calibrate`` command for the question of these flags.

    None without labels, and for heads, chats and templates with fields other than the text.
    """
    asks = flags.task or flags.labels or flags.labels_file
    if not asks or flags.chat or flags.system is not None or flags.head:
        return None
    template = None if flags.task else template_of_rows(flags)
    if template is not None and set(template.fields) != {TEXT}:
        return None
    arguments = ["infer-cli", "calibrate", "-m", str(flags.model)]
    shared_flags = {
        "--backend": flags.backend,
        "--adapter-path": flags.adapter_path,
        "--format": flags.form,
        "--field": flags.field,
        "--gold": flags.gold,
    }
    for flag, value in shared_flags.items():
        if value not in (None, "", "auto"):
            arguments += [flag, str(value)]
    arguments += ["-i", "FILE" if flags.file in (None, "-") else str(flags.file)]
    return " ".join(map(quoted, [*arguments, *_question(flags), "-o", "task.toml"]))


def _question(flags: RowFlags) -> list[str]:
    if flags.task:
        return ["--task", flags.task]
    # Without a template the input is the prompt.
    template = flags.template if flags.template is not None else "{text}"
    options = {
        "--template": None if flags.template_file else template,
        "--template-file": flags.template_file,
        "--labels": flags.labels,
        "--labels-file": flags.labels_file,
        "--label-prefix": flags.label_prefix,
        "--label-sentence": flags.label_sentence,
    }
    return [part for flag, value in options.items() if value is not None for part in (flag, value)]


def quoted(argument: str) -> str:
    """Return the argument quoted for a shell, on one line, without control characters."""
    if argument.isprintable():
        return shlex.quote(argument)
    escaped = "".join(
        character
        if character.isascii() and character.isprintable() and character not in "'\\"
        else "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))
        for character in argument
    )
    return f"$'{escaped}'"
