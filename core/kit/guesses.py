"""Names of other libraries that people try: the AttributeError says what there is instead."""

from __future__ import annotations

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
