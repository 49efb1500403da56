"""Record how transformers decodes with the two real models (see README.md).

For each model directory: greedy continuations of the prompts in prompts.json, computed in float32
with eager attention, and, at each step, the log-probability of the chosen token and the margin
(its logit minus the second best). The files in data/ are named like the directories::

    python make_decodings.py ~/.cache/core/models/{smollm2-135m-instruct,gemma-3-270m}
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]
import transformers  # type: ignore[import-not-found, unused-ignore]

Case = dict[str, Any]

HERE = Path(__file__).resolve().parent
STEPS = 32
# Its answer ends by itself, before the last step.
MESSAGES = [{"role": "user", "content": "What is 2 + 2? Answer with the number only."}]


class Reference:
    """One model as transformers loads and runs it."""

    def __init__(self, directory: Path) -> None:
        self.tokenizer: Any = transformers.AutoTokenizer.from_pretrained(directory)
        self._model: Any = transformers.AutoModelForCausalLM.from_pretrained(
            directory, dtype=torch.float32, attn_implementation="eager"
        )

    def greedy(self, ids: Sequence[int]) -> tuple[list[int], torch.Tensor]:
        """Up to `STEPS` ids, an end-of-sequence id included, and their logits [steps, vocab]."""
        prompt = torch.tensor([list(ids)])
        with torch.inference_mode():
            found = self._model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=STEPS,
                do_sample=False,
                return_dict_in_generate=True,
                output_logits=True,
            )
        return found.sequences[0, len(ids) :].tolist(), torch.cat(found.logits)


def decoding(reference: Reference, ids: Sequence[int]) -> Case:
    """What is stored of one prompt; logarithms are natural."""
    chosen, logits = reference.greedy(ids)
    best = logits.double().topk(2).values
    logprobs = logits.double().log_softmax(-1)[range(len(chosen)), chosen]
    return {
        "ids": list(ids),
        "continuation": chosen,
        "text": reference.tokenizer.decode(chosen, skip_special_tokens=True),
        "logprobs": [round(value, 6) for value in logprobs.tolist()],
        "margins": [round(value, 6) for value in (best[:, 0] - best[:, 1]).tolist()],
    }


def cases(reference: Reference) -> list[Case]:
    """Every prompt, and a conversation where the model has a chat template."""
    prompts: dict[str, str] = json.loads((HERE / "prompts.json").read_text(encoding="utf-8"))
    found = [
        {"name": name, **decoding(reference, reference.tokenizer(prompt).input_ids)}
        for name, prompt in prompts.items()
    ]
    if reference.tokenizer.chat_template:
        ids = reference.tokenizer.apply_chat_template(
            MESSAGES, add_generation_prompt=True, return_dict=False
        )
        found.append({"name": "chat", "messages": MESSAGES, **decoding(reference, ids)})
    return found


def write(directory: Path) -> None:
    """The record of one model directory."""
    conversion = json.loads((directory / "conversion.json").read_bytes())
    content = {
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "gguf_sha256": conversion["source"]["sha256"],
        "cases": cases(Reference(directory)),
    }
    target = HERE / "data" / f"{directory.name}.json"
    target.write_text(one_case_a_line(content), encoding="utf-8")


def one_case_a_line(content: Case) -> str:
    """JSON in which a change of one case is a change of one line."""
    head = json.dumps({**content, "cases": None}, indent=1, ensure_ascii=False)
    lines = (json.dumps(case, ensure_ascii=False) for case in content["cases"])
    return head.replace("null", "[\n  " + ",\n  ".join(lines) + "\n ]") + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directories", nargs="+", type=Path, help="model directories")
    (HERE / "data").mkdir(exist_ok=True)
    torch.set_num_threads(2)
    for directory in parser.parse_args().directories:
        write(directory)


if __name__ == "__main__":
    main()
