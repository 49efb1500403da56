"""Record what transformers makes of each published directory (README.md).

For each, data/NAME.json has: the ids of every text of texts.json, special tokens in them read as
plain text ("plain") and as such ("marked"); the ids as transformers' own class gives them, where
that rebuilds the tokenizer and they differ ("rebuilt"); a conversation's prompt and its ids; and
for some prompts float32 logits and the greedy continuation. From the root of the repository::

    python -m runtime.tests.published.make_reference
"""

from __future__ import annotations

import json
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from .publications import PUBLICATIONS, Publication
from .writing import HERE, template_of, write

Ids = list[int]

NOW = datetime(2025, 2, 3, 4, 5)  # what strftime_now says in templates
MESSAGES = [
    {"role": "user", "content": "Hello, what is the news?"},
    {"role": "assistant", "content": "The team won."},
    {"role": "user", "content": " Write one word only: science, sports\n"},
]
COMPUTED = ("plain", "mixed", "one word")  # the texts that are continued, beside the conversation
TOKENS = 8
SAMPLED = 48  # logits that are kept of each prompt, spread over the vocabulary
MARGIN = 1e-3  # between the best two logits: nearer ones would be a matter of rounding


def record(publication: Publication, directory: Path) -> dict[str, Any]:
    """Compute everything about one directory."""
    texts: dict[str, str] = json.loads((HERE / "texts.json").read_text(encoding="utf-8"))
    exact = PreTrainedTokenizerFast.from_pretrained(directory)  # tokenizer.json as it stands
    chosen = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager"
    )

    plain = {name: encoded(exact, text, split=True) for name, text in texts.items()}
    rebuilt = {name: encoded(chosen, text, split=True) for name, text in texts.items()}
    differs = {name: ids for name, ids in rebuilt.items() if ids != plain[name]}
    if bool(differs) != publication.rebuilt:
        raise SystemExit(f"{publication.name}: rebuilt is {publication.rebuilt}, {list(differs)}")

    if publication.place == "chat_template.json":  # which transformers reads for processors alone
        exact.chat_template = chosen.chat_template = template_of(publication)
    prompt = exact.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    if prompt != chosen.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True):
        raise SystemExit(f"{publication.name}: two prompts for one conversation.")
    chat = exact(prompt, add_special_tokens=False).input_ids
    prompts = {**{name: plain[name] for name in COMPUTED}, "chat": chat}
    return {
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "now": NOW.isoformat(),
        "plain": plain,
        "marked": {
            name: exact(text, add_special_tokens=False).input_ids for name, text in texts.items()
        },
        "rebuilt": differs,
        "messages": MESSAGES,
        "prompt": prompt,
        "chat": chat,
        "computed": {name: computed(model, ids) for name, ids in prompts.items()},
    }


def encoded(tokenizer: Any, text: str, *, split: bool) -> Ids:
    """Return the ids of a prompt; with ``split``, special tokens in it are plain text."""
    library = tokenizer._tokenizer
    before, library.encode_special_tokens = library.encode_special_tokens, split
    try:
        ids: Ids = library.encode(text, add_special_tokens=True).ids
    finally:
        library.encode_special_tokens = before
    return ids


def computed(model: Any, ids: Ids) -> dict[str, Any]:
    """Compute logits at the end of a prompt, and the tokens that greedy decoding adds to it."""
    context, chosen, steps = [*ids], [], []
    with torch.no_grad():
        for _ in range(TOKENS):
            logits = model(torch.tensor([context])).logits[0, -1]
            steps.append(logits)
            best = logits.topk(2).values
            if best[0] - best[1] < MARGIN:
                raise SystemExit("Two logits are equal but for rounding: choose another seed.")
            chosen.append(int(logits.argmax()))
            context.append(chosen[-1])
    first = steps[0]
    places = [place * len(first) // SAMPLED for place in range(SAMPLED)]
    return {
        "logits": {place: float(f"{float(first[place]):.9g}") for place in places},
        "logsumexp": float(first.logsumexp(-1)),
        "greedy": chosen,
    }


def main() -> None:
    """Write the record of every publication."""
    (HERE / "data").mkdir(exist_ok=True)
    with patch("transformers.utils.chat_template_utils.datetime", wraps=datetime) as clock:
        clock.now.return_value = NOW
        for publication in PUBLICATIONS:
            with tempfile.TemporaryDirectory() as name:
                directory = Path(name) / publication.name
                directory.mkdir()
                content = record(publication, write(publication, directory))
            lines = [f" {json.dumps(key)}: {_shown(value)}" for key, value in content.items()]
            text = "{\n" + ",\n".join(lines) + "\n}\n"
            (HERE / "data" / f"{publication.name}.json").write_text(text, encoding="utf-8")


def _shown(value: Any) -> str:
    """Return JSON with one entry a line."""
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    lines = [f"  {json.dumps(name)}: {json.dumps(item)}" for name, item in value.items()]
    return "{\n" + ",\n".join(lines) + "\n }" if lines else "{}"


if __name__ == "__main__":
    main()
