"""The requests to each server in its API format, with the same prompts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from benchmarks.classify_parts.workloads import LABELS, QUESTION, sentence
from benchmarks.serve_parts.client import Ask
from core.types import Message
from core_wires import systemone
from core_wires.reading import readings

ASKED = "Which field is this news about?"
TEMPLATE = "{text}" + QUESTION
LETTERS = ("A", "B", "C", "D")
_BIAS = 100.0  # what logit_bias allows at most: nothing else comes first


def texts(count: int, first: int = 0) -> list[str]:
    """Distinct sentences of some 25 tokens."""
    return [sentence(index) for index in range(first, first + count)]


def decision(text: str, labels: Sequence[str] = LABELS) -> Ask:
    """A decision of System One's, with the options in this order."""
    question = {"type": "choice", "instructions": ASKED, "criteria": dict.fromkeys(labels)}
    body = {"model": "jev-latest", "state": text, "questions": {"field": question}}
    return Ask("/v1/systemone", body)


def prompt(text: str) -> str:
    """Return the prompt that our server makes of `decision`; the others get it as it is."""
    [reading] = readings(systemone.read(decision(text).body))
    return reading.as_text()


def completion(text: str, ids: Sequence[int], logprobs: int = 0) -> Ask:
    """Return the same decision for other servers: one of the labels' first tokens.

    ``logprobs`` of the likeliest tokens are requested with it; 0 for none.
    """
    bias = {str(id): _BIAS for id in ids}
    body = {"prompt": prompt(text), "max_tokens": 1, "temperature": 0, "logit_bias": bias}
    return Ask("/v1/completions", body | ({"logprobs": logprobs} if logprobs else {}))


def classification(texts: Sequence[str], template: str = TEMPLATE) -> Ask:
    """A list of texts, in one request."""
    body = {"texts": texts, "labels": LABELS, "template": template}
    return Ask("/v1/classify", body)


def stream(prompt: str, max_tokens: int) -> Ask:
    """A text, token by token."""
    options = {"stream": True, "stream_options": {"include_usage": True}, "temperature": 0}
    body = {"model": "", "prompt": prompt, "max_tokens": max_tokens, **options}
    return Ask("/v1/completions", body)


def letters(text: str, labels: Sequence[str]) -> tuple[Message, ...]:
    """The conversation in which a letter stands for each label, in this order."""
    listed = "\n".join(f"{letter}. {label}" for letter, label in zip(LETTERS, labels, strict=True))
    question = f"{ASKED}\n{listed}\nAnswer with one letter.\n\n{text}"
    return (Message("user", question),)


def chosen(reply: Any) -> str:
    """The label that a server's answer to `decision` or `completion` names."""
    if "answers" in reply:
        return str(reply["answers"]["field"]["choice"])
    token = reply["choices"][0]["text"].strip()
    begun = [label for label in LABELS if token and label.startswith(token)]
    return begun[0] if len(begun) == 1 else ""


def generated(body: bytes) -> int:
    """Return the number of tokens in a stream, as reported at its end."""
    events = [line for line in body.decode().splitlines() if line.startswith("data: {")]
    return int(json.loads(events[-1].removeprefix("data: "))["usage"]["completion_tokens"])
