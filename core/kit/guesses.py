"""Names of other libraries that people try: the AttributeError says what there is instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

OF_MODELS = {
    **dict.fromkeys(("embed", "embeddings"), "hidden_states(texts) returns the states of texts"),
    "tokenizer": "encode(text) and decode(ids) are its own methods",
    "tokenize": "encode(text) returns token ids",
    "detokenize": "decode(ids) returns their text",
    "predict": "classify(texts, labels=...) returns labels",
    "stream": "generate(prompt) is a stream of tokens",
    **dict.fromkeys(
        ("fit", "train"),
        "core_learn.FewShot(model).fit(texts, labels) trains a classifier head; the backends "
        "metal, mlx_cuda and mlx_cpu train adapters",
    ),
    "create_chat_completion": "chat(messages) answers a conversation",
    "create_completion": "generate(prompt) continues a prompt",
}
"""Names of other libraries' models, each with what there is instead."""


class Guessable:
    """A mixin: an attribute that there is not, but in ``_guesses``, is an error with its advice."""

    __slots__ = ()
    _guesses: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:  # for type checkers there is no such attribute

        def __getattr__(self, name: str) -> object:
            """Raise AttributeError; see `object.__getattribute__`."""
            if advice := type(self)._guesses.get(name):
                raise AttributeError(f"{type(self).__name__} has no {name!r}: {advice}.", name=name)
            return object.__getattribute__(self, name)  # raises, as without this method
