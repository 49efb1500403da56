"""Write sentence-transformers' embeddings of all-MiniLM-L6-v2, in double precision.

    pip install torch==2.13.0 sentence-transformers==6.2.0
    python plugins/openvino/tests/encoder/oracle/make_embeddings.py DIRECTORY

``plain`` reads special tokens in texts as text, as this project does; ``marked`` as special ones,
as sentence-transformers does by default. Both cut texts at 256 tokens.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from sentence_transformers import (  # type: ignore[import-not-found, unused-ignore]
    SentenceTransformer,
)

DATA = Path(__file__).parent / "minilm"
TEXTS = [
    "a",
    "Hello, world!",
    "This text is about sports.",
    "The central bank raised interest rates by a quarter of a point on Thursday.",
    "The central bank raised interest rates by a quarter of a point on Friday.",
    "UPPER CASE, lower case, and MiXeD cAsE.",
    "Ünïcödé: naïve café, façade, Ångström, crème brûlée.",
    "Das Parlament hat gestern über das neue Gesetz abgestimmt.",
    "El equipo ganó el partido en el último minuto.",
    "中央銀行は木曜日に金利を引き上げた。",
    "球队在最后一分钟赢得了比赛。",
    "Команда выиграла матч на последней минуте.",
    "한국어 문장도 하나 있습니다.",
    "Emoji: 🎉 🚀 and symbols: €, £, ≠, →.",
    "   white   space \t and\nnew lines   ",
    "12345 67.89 2026-11-27T11:30:00Z +49 (0)30 1234567",
    "def f(x): return {x: [x**2 for _ in range(3)]}",
    "pneumonoultramicroscopicsilicovolcanoconiosis " * 3,
    "x" * 150,
    "[CLS] spelled [SEP] in a text [MASK] [PAD] [UNK]",
    "word " * 200,
    "one two three four five " * 60,
    "A long article. " + "The committee met again to discuss the budget of the city. " * 40,
    "!?.,;:-()[]{}\"'",
]


def main(directory: str) -> None:
    """Write the texts and both arrays."""
    model = SentenceTransformer(directory, device="cpu").double()
    DATA.mkdir(exist_ok=True)
    (DATA / "texts.json").write_text(json.dumps(TEXTS, indent=1))
    for name, as_text in (("plain", True), ("marked", False)):
        model.tokenizer.split_special_tokens = as_text
        np.save(DATA / f"{name}.npy", model.encode(TEXTS, batch_size=8).astype(np.float32))


if __name__ == "__main__":
    main(sys.argv[1])
