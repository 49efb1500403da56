"""``infer-cli info``: a model's metadata, and the backend that would load it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from core.system.terminal import visible
from core_cli import completion, exits, help, options, output

if TYPE_CHECKING:
    from core.options import LoadConfig
    from core.types import DiscoveredModel
    from core_cli.loading import Loaded


# Names of facts in the output for people.
_WORDS = {
    "model_type": "model type",
    "num_files": "files",
    "context_length": "context length",
    "num_layers": "layers",
    "hidden_size": "hidden size",
    "vocab_size": "vocabulary",
}


@click.command(cls=help.Command, epilog=help.examples("infer-cli info SmolLM2-135M-Instruct"))
@click.argument("given", metavar="[MODEL]", required=False, shell_complete=completion.models)
@options.optional_model_option
@options.load_options
@click.option("--load", "wanted", is_flag=True, help="Load the model and show the settings chosen.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def info(given: str | None, wanted: bool, as_json: bool, **options: Any) -> None:
    """Show a model's metadata and the backend that would load it.

    Exits with 4 and the reasons if no backend can load it.
    """
    from core.models.locating import located
    from core.models.stores import model_at
    from core.options import LoadConfig
    from core_cli.commands.facts import facts_of
    from core_cli.flags import LoadFlags, one_model
    from core_cli.loading import load

    flags = LoadFlags(**options)
    model = one_model(given, flags.model)
    config = flags.load_config()
    if not wanted and config != LoadConfig(backend=config.backend):
        raise click.UsageError("Load options require --load.")
    place = located(model)
    location, discovered = place.path, place.described(model_at(place.path))
    facts = facts_of(location, discovered, config.backend) | _backend(location, discovered, config)
    if wanted and facts["backend"] is not None:
        loaded = load(model, config)
        with loaded.model:
            facts["loaded"] = _loaded(loaded)
    if as_json:
        output.write_json(facts)
    else:
        output.write_text("".join(_lines(facts)))
    if facts["backend"] is None:
        raise click.exceptions.Exit(exits.BACKEND)


def _backend(path: str, discovered: DiscoveredModel | None, config: LoadConfig) -> dict[str, Any]:
    """Return the backend chosen, the reason, and why backends of higher priority were skipped."""
    from core.errors import ModelAccessError
    from core.kit.support import load_needs
    from core.models.weight_files import NO_PERMISSION
    from core.protocols import Capability
    from core.registry import REGISTRY
    from core_cli.loading import choose

    # The verdict that discover shows, which also checks the files.
    name, verdict = config.backend, REGISTRY.verdict(path, discovered)
    problem = discovered.problem if discovered else ""
    if problem == NO_PERMISSION:
        raise ModelAccessError(verdict.reason)
    able = [candidate for candidate in verdict.backends if name in ("", candidate)]
    if not able and (problem or not name):
        unloadable: dict[str, Any] = {
            "backend": None,
            "backends": (),
            "problem": verdict.why_nobody,
        }
        return {**unloadable, "reason": verdict.reason, "skipped": {}}

    needs = set(load_needs(config).values())
    if discovered is not None and discovered.adapters:
        needs.add(Capability.ADAPTERS)
    choice = choose(path, name, of_options=needs)
    return {
        "backend": choice.backend.name,
        "backends": verdict.backends,
        "problem": None,
        "reason": choice.reason,
        "skipped": dict(choice.skipped),
    }


def _loaded(loaded: Loaded) -> dict[str, Any]:
    import msgspec

    return {
        "seconds": loaded.seconds,
        "info": msgspec.to_builtins(loaded.model.info),
        "choices": msgspec.to_builtins(loaded.choices()),
    }


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    for name, value in facts.items():
        # Composite values get one line per part.
        if name == "skipped":
            for backend, reason in value.items():
                yield _line(f"not {backend}", reason)
        elif name == "loaded":
            yield from _lines(value["info"])
            for choice in value["choices"]:
                yield _line(choice["name"], f"{choice['value']} ({choice['reason']})")
            yield _line("loaded in", f"{value['seconds']:.2f} s")

        # Facts that share a line, and facts with another name.
        elif name == "quant_bits":
            yield _line("quantisation", _quantisation(facts))
        elif name in ("quantisation", "quant_group"):
            continue
        elif name == "backends":
            if value[1:] or (value and facts["backend"] is None):
                yield _line("loaded by", ", ".join(value))
        elif name == "parts":
            for kind, use in value.items():
                yield _line(kind, use)
        elif name == "problem":
            if value is not None:
                yield _line("problem", value)
        elif name == "chat_template":
            if value is not None:
                yield _line("chat template", "the model's own" if value else "none of its own")
        elif name == "size_bytes":
            yield _line("size", "-" if value is None else output.human_size(value))
        else:
            yield _line(_WORDS.get(name, name.replace("_", " ")), _text(value))


def _text(value: object) -> str:
    return "-" if value is None else str(value)


def _quantisation(facts: dict[str, Any]) -> str:
    """Return ``Q4_K_M (4 bits, in groups of 256)``, or the type of unquantised weights."""
    bits, group = facts["quant_bits"], facts["quant_group"]
    name = facts.get("quantisation")
    if not bits:
        return name or ("-" if bits is None or facts.get("problem") else "none")
    detail = f"{bits} bits, in groups of {group}" if group else f"{bits} bits"
    return f"{name} ({detail})" if name else detail


def _line(name: str, value: str) -> str:
    """Return a line for a name and a value; further lines of the value are indented."""
    return f"{name + ':':<18}" + ("\n" + 18 * " ").join(map(visible, value.split("\n"))) + "\n"
