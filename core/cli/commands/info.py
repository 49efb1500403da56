"""``infer-cli info``: what can be said about a model, and which backend would load it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from core.cli import completion, exits, output, settings
from core.system.visible import visible

if TYPE_CHECKING:
    from core.cli.loading import Loaded


@click.command()
@click.argument("model", shell_complete=completion.models)
@settings.load_options
@click.option("--load", "wanted", is_flag=True, help="Load it, and say what was chosen.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def info(model: str, wanted: bool, as_json: bool, **flags: Any) -> None:
    """Describe a model, and the backend for it.

    Where none loads it, it says why, and the exit code is 4.
    """
    from core.cli.commands.facts import facts_of
    from core.cli.loading import load
    from core.models.names import locate
    from core.options import LoadConfig

    config = settings.load_config(flags)
    if not wanted and config != LoadConfig(backend=config.backend):
        raise click.UsageError("Options of a load go with --load: nothing is loaded without it.")
    location = locate(model)
    facts = facts_of(location) | _backend(location, config.backend)
    if wanted:
        loaded = load(location, config)
        with loaded.model:
            facts["loaded"] = _loaded(loaded)
    if as_json:
        output.write_json(facts)
    else:
        output.write_text("".join(_lines(facts)))
    if facts["backend"] is None:
        raise click.exceptions.Exit(exits.BACKEND)


def _backend(path: str, name: str) -> dict[str, Any]:
    """The backend that is chosen, why, and what speaks against those that stand before it."""
    from core.cli.loading import choose
    from core.errors import BackendError, UnsupportedModelError

    try:
        choice = choose(path, name)
    except (BackendError, UnsupportedModelError) as error:
        if name:
            raise
        return {"backend": None, "reason": str(error), "skipped": {}}
    skipped = dict(choice.skipped)
    return {"backend": choice.backend.name, "reason": choice.reason, "skipped": skipped}


def _loaded(loaded: Loaded) -> dict[str, Any]:
    import msgspec

    return {
        "seconds": loaded.seconds,
        "info": msgspec.to_builtins(loaded.model.info),
        "choices": msgspec.to_builtins(loaded.choices()),
    }


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    for name, value in facts.items():
        # Values with parts come as a line for each part.
        if name == "skipped":
            for backend, reason in value.items():
                yield _line(f"not {backend}", reason)
        elif name == "loaded":
            yield from _lines(value["info"])
            for choice in value["choices"]:
                yield _line(choice["name"], f"{choice['value']} ({choice['reason']})")
            yield _line("loaded in", f"{value['seconds']:.2f} s")

        # Two facts that are one line, and what reads better in other words.
        elif name == "quant_bits":
            yield _line("quantisation", _quantisation(value, facts["quant_group"]))
        elif name == "quant_group":
            continue
        elif name == "size_bytes" and value is not None:
            yield _line("size", output.human_size(value))
        else:
            yield _line(name.replace("_", " "), "-" if value is None else str(value))


def _quantisation(bits: int | None, group: int | None) -> str:
    if not bits:
        return "-" if bits is None else "none"
    return f"{bits} bits, in groups of {group}" if group else f"{bits} bits"


def _line(name: str, value: str) -> str:
    lines = value.split("\n") if name == "reason" else [value]
    return f"{name + ':':<18}" + ("\n" + 18 * " ").join(map(visible, lines)) + "\n"
