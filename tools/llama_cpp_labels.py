"""Label the demo's sentences with llama.cpp: an independent opinion on the same GGUF files.

Writes, for each model, the label, the probabilities over the labels and the margin (best minus
second) of every sentence, with the versions, the GGUF's checksum, the template and
the labels beside them. The scores follow the contract of ``classify``: a label's score is the joint
log-probability of the tokens of " " + label after the prompt, and the probabilities are the
softmax of the scores. This script uses nothing of this project, so that it shares no mistakes.

Run it where llama-cpp-python is installed, from the root of the checkout::

    python tools/llama_cpp_labels.py smollm2-135m-instruct=SmolLM2-135M-Instruct.Q4_1.gguf \
        gemma-3-270m=gemma-3-270m-Q4_K_M.gguf
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Row = npt.NDArray[np.float64]

ROOT = Path(__file__).resolve().parents[1]
SENTENCES = ROOT / "examples" / "headlines.jsonl"
RECORD = ROOT / "plugins" / "mlx_native" / "tests" / "data" / "llama_cpp_labels.json"
# The demo's; the test that reads the record compares them.
LABELS = ("finance", "sports", "science", "technology")
TEMPLATE = "{text} This news is about"


def log_softmax(row: Row) -> Row:
    """Natural-log probabilities of one row of logits or scores; same shape."""
    shifted: Row = row - row.max()
    return shifted - math.log(np.exp(shifted).sum())


class Scorer:
    """A GGUF model that scores labels after a prompt."""

    def __init__(self, path: Path, threads: int) -> None:
        import llama_cpp  # type: ignore[import-not-found, unused-ignore]

        self._model: Any = llama_cpp.Llama(
            str(path), n_ctx=512, n_threads=threads, n_threads_batch=threads, verbose=False
        )
        self._read_logits = llama_cpp.llama_get_logits_ith
        self.size: int = self._model.n_vocab()
        self._last: tuple[tuple[int, ...], Row] | None = None

    def encode(self, text: str) -> list[int]:
        """Token ids with the model's BOS, if it has one; special tokens are plain text."""
        ids: list[int] = self._model.tokenize(text.encode(), add_bos=True, special=False)
        return ids

    def logprobs_after(self, ids: tuple[int, ...]) -> Row:
        """The next-token log-probabilities after these tokens, [vocab_size]."""
        # The labels share the prompt: its forward pass is cached until the next prompt.
        if self._last is None or self._last[0] != ids:
            self._last = (ids, log_softmax(self._forward(ids)))
        return self._last[1]

    def _forward(self, ids: tuple[int, ...]) -> Row:
        self._model.reset()
        self._model.eval(ids)
        row = self._read_logits(self._model.ctx, -1)
        return np.ctypeslib.as_array(row, shape=(self.size,)).astype(np.float64)

    def score(self, prompt: str, label: str) -> float:
        """The joint log-probability of " " + label after the prompt."""
        ids, whole = self.encode(prompt), self.encode(f"{prompt} {label}")
        if whole[: len(ids)] != ids:
            raise SystemExit(f"{label!r} changes how {prompt!r} is tokenised; change TEMPLATE.")
        ends = range(len(ids), len(whole))
        return sum(float(self.logprobs_after(tuple(whole[:end]))[whole[end]]) for end in ends)


def classify(scorer: Scorer, text: str) -> dict[str, object]:
    """The label, probabilities (over the labels) and margin of one sentence."""
    prompt = TEMPLATE.format(text=text)
    scores = np.array([scorer.score(prompt, label) for label in LABELS])
    shares = np.exp(log_softmax(scores))
    second, best = np.sort(shares)[-2:]
    return {
        "label": LABELS[int(shares.argmax())],
        "margin": round(float(best - second), 4),
        "probabilities": {name: round(float(p), 4) for name, p in zip(LABELS, shares, strict=True)},
    }


def record_model(path: Path, rows: Sequence[dict[str, str]], threads: int) -> dict[str, object]:
    """Return the scores of one model for every sentence."""
    scorer = Scorer(path, threads)
    results = [classify(scorer, row["text"]) for row in rows]
    right = sum(result["label"] == row["label"] for result, row in zip(results, rows, strict=True))
    print(f"{path.name}: {right} of {len(rows)} as expected")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"gguf_sha256": digest, "results": results}


def named_path(argument: str) -> tuple[str, Path]:
    """Split NAME=FILE.gguf."""
    name, separator, path = argument.partition("=")
    if not separator or not Path(path).is_file():
        raise argparse.ArgumentTypeError(f"{argument!r} is not NAME=FILE with an existing file")
    return name, Path(path)


def main() -> None:
    """Score all models named on the command line and write the record."""
    parser = argparse.ArgumentParser(description="Label the demo's sentences with llama.cpp.")
    parser.add_argument("models", nargs="+", type=named_path, metavar="NAME=FILE.gguf")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path, default=RECORD)
    arguments = parser.parse_args()
    raw = SENTENCES.read_bytes()
    rows = [json.loads(line) for line in raw.decode().splitlines()]
    record = {
        "sentences_sha256": hashlib.sha256(raw).hexdigest(),
        "template": TEMPLATE,
        "labels": LABELS,
        "versions": {
            "llama-cpp-python": version("llama-cpp-python"),
            "python": platform.python_version(),
            "machine": platform.machine(),
        },
        "models": {
            name: record_model(path, rows, arguments.threads) for name, path in arguments.models
        },
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
