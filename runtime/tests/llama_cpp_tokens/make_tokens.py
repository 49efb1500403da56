"""Record llama.cpp's token ids for many strings, as the reference of converted tokenizers.

Needs llama-cpp-python. Reads strings.json beside itself and writes tokens.json there. The names
in tokens.json are those on the command line; `with_pre.py` makes the last two files::

    python make_tokens.py smollm2=SMOLLM2.gguf gemma3=GEMMA3.gguf llama-bpe=A.gguf gpt-2=B.gguf
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import llama_cpp

_HERE = Path(__file__).parent
_ALPHABET = "abcdefghijklmnop ABC    \n\t0123456789.,!?'\"-éßñüЖд中文字あ한😀👍½²<>|_/\\{}()▁"
_WORDS = ["the", "market", "it's", "2024", "Über", "日本", "\n\n", "  ", "😀", "C++", "<h1>", " "]


def random_strings(count: int, seed: int = 20) -> list[str]:
    """Half of them characters, half of them words, in no order."""
    source = random.Random(seed)
    characters = [
        "".join(source.choices(_ALPHABET, k=source.randint(1, 40))) for _ in range(count // 2)
    ]
    words = ["".join(source.choices(_WORDS, k=source.randint(2, 12))) for _ in characters]
    return characters + words


def main() -> None:
    """Tokenise with each model and write the file."""
    strings = json.loads((_HERE / "strings.json").read_bytes())
    plain = list(dict.fromkeys([*strings["plain"], *random_strings(120)]))
    content: dict[str, object] = {
        "llama_cpp_python": llama_cpp.__version__,
        "plain": plain,
        "with_special": strings["with_special"],
    }
    for name, _, path in (argument.partition("=") for argument in sys.argv[1:]):
        model = llama_cpp.Llama(path, vocab_only=True, verbose=False)
        content[name] = {
            "plain": [model.tokenize(text.encode(), special=False) for text in plain],
            "with_special": [
                model.tokenize(text.encode(), add_bos=False, special=True)
                for text in strings["with_special"]
            ],
        }
    text = json.dumps(content, separators=(",", ":"))
    (_HERE / "tokens.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
