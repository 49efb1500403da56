"""The prompts that are classified: eight workloads, the same in every run.

Their sentences are made from examples/headlines.jsonl by cycling and recombining sentences of one
field, so that any number of them differ and the expected labels stay what they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SENTENCES = ROOT / "examples" / "headlines.jsonl"
LABELS = ("finance", "sports", "science", "technology")
QUESTION = " This news is about"  # a label follows, after a space

_SENTENCE_WORDS = 21  # about 25 tokens, with the question about 30
_SHORTEST, _LONGEST = 1, 355  # words of the skewed workload: 6 to 400 tokens with the question
_GOLDEN = 0.6180339887498949  # its multiples spread evenly over [0, 1), whatever their number

INSTRUCTION = (
    "You are a careful editor at a news agency. Read the following report and decide which of our "
    "four sections should print it: finance, sports, science or technology. Answer with one word "
    "only. Report: "
)
FEW_SHOT = (
    "Decide for each report which section of the newspaper prints it.\n"
    "The airline raised its profit forecast after ticket sales beat what analysts had expected. "
    "This news is about finance\n"
    "The goalkeeper saved two penalties and sent the visitors into the final of the tournament. "
    "This news is about sports\n"
    "Biologists described a frog that survives the winter frozen solid under fallen leaves. "
    "This news is about science\n"
    "The new laptop opens without a password because its camera recognises the owner's face. "
    "This news is about technology\n"
    "Shares of the largest retailer fell when it warned that customers were spending less. "
    "This news is about finance\n"
    "A runner from Kenya won the marathon in just over two hours despite heavy rain. "
    "This news is about sports\n"
)


@cache
def headlines() -> tuple[tuple[str, str], ...]:
    """Text and field of every sentence of the file."""
    rows = map(json.loads, SENTENCES.read_text(encoding="utf-8").splitlines())
    return tuple((row["text"], row["label"]) for row in rows)


def sentence(index: int, words: int = _SENTENCE_WORDS) -> str:
    """Return a text of this many words: a headline, followed by others of the same field.

    Every later cycle through the file begins within its headlines, so that sentences of
    different cycles share no beginning, and takes up with another neighbour: from the sixth on,
    after two words.
    """
    cycle, row = divmod(index, len(headlines()))
    text, field = headlines()[row]
    peers = [other for other, label in headlines() if label == field]
    start = peers.index(text)
    taken = text.split()[cycle % 5 :]
    step = 1 + cycle // 5
    if step > 1:
        taken = taken[:2]
    while len(taken) < words:
        start = (start + step) % len(peers)
        taken += peers[start].split()
    joined = " ".join(taken[:words]).rstrip(".,")
    return joined[0].upper() + joined[1:] + "."


def _behind(template: str) -> Callable[[int], str]:
    return lambda index: template + sentence(index) + QUESTION


def _skewed(index: int) -> str:
    """Lengths whose logarithms are spread evenly: many short prompts, few long ones."""
    where = ((index + 1) * _GOLDEN) % 1.0
    words = round(_SHORTEST * (_LONGEST / _SHORTEST) ** where)
    return sentence(index, words) + QUESTION


def _repeated(index: int) -> str:
    """Return a prompt; of each 64, 16 are distinct, and they repeat in order."""
    block, place = divmod(index, 64)
    return _behind(INSTRUCTION)(16 * block + place % 16)


class Workload(NamedTuple):
    """Prompts by their number, and the form of the calls.

    ``call``: prompts of one call, 0 for all of them; ``neighbours``: other processes that compute
    meanwhile.
    """

    title: str
    prompt: Callable[[int], str]
    call: int = 0
    neighbours: int = 0


WORKLOADS = {
    "a": Workload("30-token sentences behind a 40-token instruction", _behind(INSTRUCTION)),
    "b": Workload("30-token sentences behind a 150-token few-shot template", _behind(FEW_SHOT)),
    "c": Workload("30-token sentences, nothing shared", _behind("")),
    "d": Workload("lengths from 5 to 400 tokens, most of them short", _skewed),
    "e": Workload("(a) with every text four times", _repeated),
    "f": Workload("(a), one text a call", _behind(INSTRUCTION), call=1),
    "g": Workload("(a), eight texts a call", _behind(INSTRUCTION), call=8),
    "h": Workload("(a) beside another process that computes", _behind(INSTRUCTION), neighbours=1),
}


def prompts(workload: str, count: int) -> list[str]:
    """The first ``count`` prompts of a workload."""
    make = WORKLOADS[workload].prompt
    return [make(index) for index in range(count)]
