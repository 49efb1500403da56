"""Make ``sentiment.jsonl`` of the npm package ``sentiment`` 5.0.2: ``make_sentiment.py FOLDER``.

FOLDER is the package, unpacked. Its tests carry the Sentiment Labelled Sentences of D. Kotzias et
al., From group to individual labels using deep features, KDD 2015 (CC BY 4.0): reviews of products,
films and restaurants. Of each source and label a hundred are taken, those whose texts come first by
their SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

SOURCES, EACH = ("amazon", "imdb", "yelp"), 100
NAMES = {0: "negative", 1: "positive"}


def digest(text: str) -> str:
    """Return the sort key of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def main(folder: Path) -> None:
    """Write the file next to this script."""
    rows: dict[str, str] = {}
    for source in SOURCES:
        items = json.loads((folder / "test" / "fixtures" / f"{source}.json").read_text())
        sound = {row["text"].strip(): row["class"] for row in items if row.get("text", "").strip()}
        for number, name in NAMES.items():
            texts = sorted((text for text, kind in sound.items() if kind == number), key=digest)
            rows |= dict.fromkeys(texts[:EACH], name)
    lines = (
        json.dumps({"text": text, "label": rows[text]}, ensure_ascii=False)
        for text in sorted(rows, key=digest)
    )
    Path(__file__).with_name("sentiment.jsonl").write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
