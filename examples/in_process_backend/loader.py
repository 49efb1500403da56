"""From files to a loaded model: a `core_runtime.served.ServedModel`, and what the engine needs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from core import validate
from core.errors import InvalidModelError, InvalidOptionError, UnsupportedModelError
from core.kit.support import ASKED, chosen_backend
from core.models.files import read_config_json
from core.options import LoadConfig
from core.types import Choice, ModelInfo
from core_runtime.served import Memory

from .language import WIDTH, Language
from .tokenizer import EOS, VOCAB_SIZE, Tokenizer

MODEL_TYPE = "toy"
SLOTS = 4


@dataclass(frozen=True, slots=True)
class Loaded:
    """The values of a loaded model. ``slots``: requests that decode concurrently."""

    language: Language
    tokenizer: Tokenizer
    info: ModelInfo
    own_context: int
    choices: Sequence[Choice]
    slots: int
    stop_ids: frozenset[int] = frozenset({EOS})
    rotates: bool = False

    def memory(self) -> Memory:
        """Return the memory in use, and its peak; from any thread."""
        return Memory(self.language.weight_bytes, self.language.weight_bytes)


def load(backend: str, path: str | os.PathLike[str], config: LoadConfig) -> Loaded:
    """Raises `ModelError` for the files, `OptionError` for what does not fit them."""
    facts = read_config_json(path)
    if facts.get("model_type") != MODEL_TYPE:
        raise UnsupportedModelError(f"{os.fspath(path)!r} is not a model of type {MODEL_TYPE!r}.")
    try:
        own = validate.integer("max_position_embeddings", facts["max_position_embeddings"], 1)
        seed = validate.integer("seed", facts["seed"], 0)
    except (KeyError, InvalidOptionError) as error:
        raise InvalidModelError(f"The config.json of {os.fspath(path)!r} lacks {error}.") from error
    if config.context_len > own:
        raise InvalidOptionError("context_len", config.context_len, f"at most {own}, the model's")

    slots = config.parallel_slots or SLOTS
    return Loaded(
        language=Language(seed),
        tokenizer=Tokenizer(),
        info=ModelInfo(
            architecture=MODEL_TYPE,
            vocab_size=VOCAB_SIZE,
            num_layers=1,
            hidden_size=WIDTH,
            quant_bits=0,
            quant_group=0,
            context_length=config.context_len or own,
            logit_tolerance=0.0,
        ),
        own_context=own,
        choices=(
            chosen_backend(backend, config),
            Choice("device", "cpu", "plain Python runs nowhere else"),
            Choice("parallel_slots", str(slots), ASKED if config.parallel_slots else "the default"),
        ),
        slots=slots,
    )
