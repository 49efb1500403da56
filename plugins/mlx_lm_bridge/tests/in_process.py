"""``mlx_lm.stream_generate`` in a process of its own, for comparison: requests in, tokens out.

Reads JSON from stdin: ``model``, and ``requests`` with ``prompt`` or ``messages``, ``max_tokens``,
and ``temperature``, ``top_p``, ``min_p``, ``top_k``, ``seed``, ``repeat_penalty``. Writes, for
each, its token ids, its text and its finish reason.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

mx: Any = import_module("mlx.core")
mlx_lm: Any = import_module("mlx_lm")
sample_utils: Any = import_module("mlx_lm.sample_utils")


def run(model: Any, tokenizer: Any, request: dict[str, Any]) -> dict[str, Any]:
    """As a user of mlx-lm would write it."""
    prompt = request.get("prompt")
    if prompt is None:
        prompt = tokenizer.apply_chat_template(request["messages"], add_generation_prompt=True)
    mx.random.seed(request.get("seed", 0))
    sampler = sample_utils.make_sampler(
        request.get("temperature", 0.0),
        top_p=request.get("top_p", 0.0),
        min_p=request.get("min_p", 0.0),
        top_k=request.get("top_k", 0),
    )
    penalties = sample_utils.make_logits_processors(
        repetition_penalty=request.get("repeat_penalty"), repetition_context_size=10**6
    )
    ids, text, reason = [], "", None
    for response in mlx_lm.stream_generate(
        model,
        tokenizer,
        prompt,
        max_tokens=request["max_tokens"],
        sampler=sampler,
        logits_processors=penalties,
    ):
        text, reason = text + response.text, response.finish_reason
        if reason != "stop":
            ids.append(response.token)
    return {"ids": ids, "text": text, "finish_reason": reason}


if __name__ == "__main__":
    task = json.load(sys.stdin)
    model, tokenizer = mlx_lm.load(task["model"])
    json.dump([run(model, tokenizer, request) for request in task["requests"]], sys.stdout)
