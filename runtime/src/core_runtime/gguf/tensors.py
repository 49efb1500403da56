"""The tensors of a GGUF file by transformers' names, checked against the model's config."""

from __future__ import annotations

from collections.abc import Mapping

from core_runtime.checkpoint.config import ModelConfig
from core_runtime.checkpoint.files import Shape
from core_runtime.checkpoint.tensors import expected_tensors
from core_runtime.gguf.names import CONVENTIONS, DERIVED, hf_name
from core_runtime.gguf.source import GgufSource


def check_architecture(source: GgufSource) -> None:
    """Raise `Metadata.error` unless it is a model of an architecture in `names.CONVENTIONS`."""
    name = source.metadata.architecture
    if (kind := source.metadata.text("general.type", "model")) != "model":
        raise source.metadata.error(f"it is not a model (general.type is {kind!r:.60})")
    if name not in CONVENTIONS:
        known = ", ".join(CONVENTIONS)
        raise source.metadata.error(
            f"architecture {name!r} is not supported (supported: {known}). Use backend llama_cpp, "
            "which reads GGUF files directly"
        )
    if "token_embd.weight" not in source.tensors:
        raise source.metadata.error("token_embd.weight is missing")


def plan(source: GgufSource, config: ModelConfig) -> dict[str, str]:
    """Return the GGUF name of each transformers tensor, in the order of the file.

    Raises `Metadata.error` that lists unknown, missing and mis-shaped tensors.
    """
    conventions = CONVENTIONS[source.metadata.architecture]
    names = {name: hf_name(name, conventions) for name in source.tensors if name not in DERIVED}
    gguf_names = {hf: name for name, hf in names.items() if hf is not None}
    unknown = [f"{name} is unknown" for name, hf in names.items() if hf is None]

    # Every tensor must be known, present, and of the config's shape.
    shapes = {hf: source.shape(name) for hf, name in gguf_names.items()}
    problems = unknown + _differences(shapes, expected_tensors(config))
    if problems:
        more = f"; and {len(problems) - 12} more" if len(problems) > 12 else ""
        raise source.metadata.error(
            f"its tensors do not match a {config.model_type} model: "
            f"{'; '.join(problems[:12])}{more}"
        )

    return gguf_names


def _differences(shapes: Mapping[str, Shape], expected: Mapping[str, Shape]) -> list[str]:
    return [
        *(f"{name} is missing" for name in expected if name not in shapes),
        *(f"{name} is not part of the model" for name in shapes if name not in expected),
        *(
            f"{name} has shape {list(shapes[name])}, not {list(shape)}"
            for name, shape in expected.items()
            if name in shapes and shapes[name] != shape
        ),
    ]
