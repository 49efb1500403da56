"""The layout of help texts: commands by task, the options of a long command in sections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "Find models": ("discover", "info", "backends"),
    "Ask a model": ("classify", "generate", "chat"),
    "Improve the answers": ("label", "tune", "calibrate", "learn", "lora", "explain"),
    "Measure": ("eval", "bench", "conformance"),
    "Serve": ("serve", "mcp"),
    "Convert and combine files": ("convert", "merge"),
}

_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "Model": (
        "model",
        "models",
        "task",
        "tasks",
        "head",
        "heads",
        "adapter",
        "adapter_path",
        "backend",
    ),
    "Input": (
        *("file", "data", "form", "encoding", "field", "text", "id_field", "answer_field"),
        *("choices_field", "gold", "limit", "allow_blank", "dedupe", "shard", "validation", "test"),
        *("hold_out", "few_shot", "shots"),
    ),
    "Prompt": (
        *("template", "template_file", "templates", "template_list", "answer_prefix", "chat"),
        *("system", "chat_template_kwargs", "thinking", "opening", "continue_final_message"),
        *("new_turn", "truncate", "forget", "hide_thinking"),
    ),
    "Labels": (
        *("labels", "labels_file", "label_prefix", "label_sentence", "sentences", "words"),
        *("labels_only", "min_margin", "label", "by"),
    ),
    "Method": ("methods", "strength", "levels", "error_rate", "layers", "kinds", "early_exit"),
    "Score": (
        *("metric", "extract", "ignore_case", "ignore_punctuation", "letters", "gen_batch_size"),
        *("num_samples", "pass_at", "fail_under", "saved", "compare"),
    ),
    "Server": (
        *("host", "port", "api_key", "api_key_file", "max_queue", "memory_limit"),
        *("aliases", "log_level", "access_log"),
    ),
    "Answer": ("max_tokens", "stop", "stop_tokens", "return_logprobs"),
    "Sampling": (
        *("temperature", "top_k", "typical_p", "top_p", "min_p", "repeat_penalty", "seed"),
        "timeout",
    ),
    "Output": (
        *("output", "to", "as_json", "keep", "resume", "overwrite", "report", "plot", "progress"),
        *("show_prompt", "dry_run", "verbose"),
    ),
    "Loading": ("context_len", "context_overflow", "gpu_layers", "parallel_slots", "pairs"),
}
_TRAINING: Mapping[str, tuple[str, ...]] = {
    **{name: _OPTIONS[name] for name in ("Model", "Input", "Prompt", "Labels")},
    "Adapter": (
        *("targets", "num_layers", "rank", "scale", "alpha", "dropout", "adapter_dtype"),
        *("rank_stabilised", "dora"),
    ),
    "Training": (
        *(
            "iterations",
            "batch_size",
            "accumulate",
            "max_tokens",
            "no_mask_prompt",
            "validate_every",
        ),
        *("patience", "seed", "dtype", "gradient_checkpointing"),
    ),
    "Optimiser (AdamW)": (
        *("learning_rate", "schedule", "warmup", "final_learning_rate", "weight_decay", "betas"),
        *("eps", "clip_norm", "bias_correction"),
    ),
    "Output": ("save_every", "resume", "plot"),
}
_BENCHMARK: Mapping[str, tuple[str, ...]] = {
    "Benchmark": ("compare", "only", "pp", "tg", "batch_size", "repetitions", "warmup"),
    **_OPTIONS,
}
_CONFORMANCE: Mapping[str, tuple[str, ...]] = {
    "Backend": ("model", "pairs", "known"),
    "Checks": ("only", "timeout", "isolate", "seed", "deep", "certify"),
    "Output": ("report", "badge", "html", "as_json", "quiet"),
    "Instead of a run": ("compare", "selftest", "everything"),
}
_OF_COMMAND = {"bench": _BENCHMARK, "conformance": _CONFORMANCE, "train": _TRAINING}
_SHORT = 12  # a list of at most this many options has no sections
REST = "Other options"
_RENAMED = {
    **dict.fromkeys(("--field", "--text"), "--text-field"),
    **dict.fromkeys(("--answer-field", "--label"), "--gold"),
    **{"--data": "--input", "-b": "--backend"},
}
"""Names that options had before 1.0, and what takes their place."""


def renamed(error: click.NoSuchOption) -> click.NoSuchOption:
    """Return the error; for the former name of an option, one with the name of today."""
    name = _RENAMED.get(error.option_name)
    options = error.ctx.command.params if error.ctx is not None else ()
    if name is None or not any(name in option.opts for option in options):
        return error
    message = f"Option {error.option_name!r} is called {name!r}."
    return click.NoSuchOption(error.option_name, message, ctx=error.ctx)


class Command(click.Command):
    """A command that lists its options in sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options; those that no section lists come last."""
        for title, options in sections(self, ctx).items():
            records = (option.get_help_record(ctx) for option in options)
            with formatter.section(title):
                formatter.write_dl([record for record in records if record])


class Group(click.Group):
    """A group whose commands list their options in sections."""

    command_class = Command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by task, each with its whole summary."""
        names = [name for name in self.list_commands(ctx) if not self.commands[name].hidden]
        tasks = by_title(names, {} if ctx.parent else COMMANDS, "Commands")
        width = max(map(len, names), default=0)
        for title, members in tasks.items():
            rows = [
                (name.ljust(width), self.commands[name].get_short_help_str(1000))
                for name in members
            ]
            with formatter.section(title):
                formatter.write_dl(rows)


Group.group_class = Group


def sections(command: click.Command, ctx: click.Context) -> dict[str, list[click.Parameter]]:
    """Return the options that help shows, by section."""
    shown: list[click.Parameter] = [
        option
        for option in command.get_params(ctx)
        if isinstance(option, click.Option) and option.get_help_record(ctx)
    ]
    if len(shown) <= _SHORT + 1:  # and --help
        return {"Options": shown}
    titles = by_title(
        [*dict.fromkeys(option.name or "" for option in shown)],
        _OF_COMMAND.get(command.name or "", _OPTIONS),
        REST,
    )
    return {
        title: [option for name in names for option in shown if option.name == name]
        for title, names in titles.items()
    }


def by_title(
    names: Sequence[str], titles: Mapping[str, Sequence[str]], rest: str
) -> dict[str, list[str]]:
    """Return the names in the order of ``titles``, and those that it lacks under ``rest``."""
    listed = {title: [name for name in order if name in names] for title, order in titles.items()}
    known = {name for order in titles.values() for name in order}
    listed[rest] = [name for name in names if name not in known]
    return {title: members for title, members in listed.items() if members}


def examples(*lines: str) -> str:
    """Return the epilog of a command: command lines as examples."""
    return "\n".join(
        ["\b", "Example:" if len(lines) == 1 else "Examples:", *map("  {}".format, lines)]
    )
