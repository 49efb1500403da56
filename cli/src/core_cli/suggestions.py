"""The command lines that output suggests: complete, quoted for a shell, without secrets."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from core.secret import holds_secret, is_secret
from core_cli.flags import RowFlags, value_of
from core_cli.rows.checks import template_of_rows
from core_tasks.template import TEXT

if TYPE_CHECKING:
    from core_cli.flags import FitFlags, LoadFlags

DISCOVER = "infer-cli discover --loadable"
FILE = "FILE"
"""Stands for rows that the user has yet to choose."""


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


def resume_command() -> str:
    """Return the command line that resumes this run."""
    # After a "--" the flag would be a prompt; no prompts are given with -i.
    dropped = ("--overwrite", "--resume", "--")
    arguments, variables = public_arguments(sys.argv[1:])
    remaining = [argument for argument in arguments if argument not in dropped]
    return variables + " ".join(map(quoted, ["infer-cli", *remaining, "--resume"]))


def calibrate_command(flags: RowFlags) -> str | None:
    """Return the ``calibrate`` command for the question of these flags, on other rows.

    None without labels, and for heads, chats and templates with fields other than the text.
    """
    asks = flags.task or flags.labels or flags.labels_file or flags.gold
    if not asks or flags.chat or flags.system is not None or flags.head:
        return None
    template = None if flags.task else template_of_rows(flags)
    if template is not None and set(template.fields) != {TEXT}:
        return None
    # Rows that were compared with gold labels would be judged by what was fitted on them.
    file = FILE if flags.gold is not None else flags.file
    return _line("calibrate", flags, file, _question(flags), {"-o": "task.toml"})


def calibrate_again_command(
    flags: FitFlags, question: RowFlags, methods: Sequence[str], error_rate: float | None
) -> str:
    """Return the ``calibrate`` command for the same rows and question with other methods."""
    named: list[Mapping[str, str | None]] = [{"--method": method} for method in methods]
    rate = None if error_rate is None else str(error_rate)
    last = {**_limit(flags), "--error-rate": rate, "-o": flags.output}
    line = _line("calibrate", flags, flags.file, _question(question), *named, last)
    return f"{line} --overwrite"


def classify_command(flags: FitFlags, **more: str) -> str:
    """Return the ``classify`` command for a task or a head that was made with these flags."""
    options = {f"--{name}": value for name, value in more.items()}
    return _line("classify", flags, FILE, options, gold=False)


def learn_command(flags: FitFlags | RowFlags) -> str:
    """Return the ``learn`` command for the rows of these flags, or for others.

    Rows that an accuracy was measured on would be judged by what was learned from them.
    """
    if isinstance(flags, RowFlags):
        return _line("learn", flags, FILE, {"-o": "head.safetensors"})
    return _line("learn", flags, flags.file, _limit(flags), {"-o": "head.safetensors"})


def train_command(flags: FitFlags | RowFlags) -> str:
    """Return the ``lora train`` command for labelled rows, with the flags that it shares."""
    options = {"-m": flags.model, "--text-field": flags.field, "--gold": flags.gold, "-i": FILE}
    given = [part for flag, value in options.items() if value for part in (flag, value)]
    return " ".join(map(quoted, ["infer-cli", "lora", "train", *given, "adapter"]))


def _limit(flags: FitFlags) -> dict[str, str | None]:
    return {"--limit": None if flags.limit is None else str(flags.limit)}


def _line(
    command: str,
    flags: FitFlags | RowFlags,
    file: str | None,
    *options: Mapping[str, str | None],
    gold: bool = True,
) -> str:
    """Return a command line with the model of these flags, and how they read rows."""
    rows = {
        "--format": None if flags.form == "auto" else flags.form,
        "--encoding": flags.encoding,
        "--text-field": flags.field,
        "--truncate": flags.truncate,
        "--gold": flags.gold if gold else None,
        "-i": FILE if file in (None, "-") else str(file),
    }
    arguments = ["infer-cli", command]
    for named in (_load_flags(flags), rows, *options):
        arguments += [
            part for flag, value in named.items() if value is not None for part in (flag, value)
        ]
    arguments += [part for pair in public_pairs(flags.pairs) for part in ("-O", pair)]
    arguments += ["--allow-blank"] * bool(flags.allow_blank)
    return " ".join(map(quoted, arguments))


def _load_flags(flags: LoadFlags) -> dict[str, str | None]:
    options = {"-m": flags.model, "--backend": flags.backend}
    own = {f"--{name.replace('_', '-')}": value for name, value in flags.load_options().items()}
    return {
        flag: None if value is None else str(value) for flag, value in {**options, **own}.items()
    }


def _question(flags: RowFlags) -> dict[str, str | None]:
    if flags.task:
        return {"--task": flags.task}
    # Without a template the input is the prompt.
    template = flags.template if flags.template is not None else "{text}"
    return {
        "--template": None if flags.template_file else template,
        "--template-file": flags.template_file,
        "--labels": flags.labels,
        "--labels-file": flags.labels_file,
        "--label-prefix": flags.label_prefix,
        "--label-sentence": flags.label_sentence,
    }


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
