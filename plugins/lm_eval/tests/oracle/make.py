"""What lm-eval's own transformers model says of the tests' items: writes hflm.json beside this.

It needs torch, which nothing else here does, so it runs in an environment of its own, on a
checkpoint that the tests' environment has made::

    python -m venv /tmp/hflm
    /tmp/hflm/bin/pip install torch==2.13.0 transformers accelerate lm-eval==0.4.13
    .venv/bin/python -c "import pathlib; from tests.attacks.tiny_models import checkpoint;
        checkpoint(pathlib.Path('/tmp/tiny'))"
    /tmp/hflm/bin/python plugins/lm_eval/tests/oracle/make.py /tmp/tiny/llama
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ITEMS = HERE / "items.jsonl"
TEXTS = ["a b ab no", "ab ab b a no no ab " * 12, "b"]
PREFIX = 5


def task(folder: Path) -> dict[str, Any]:
    """A task of HellaSwag's shape on the items, which are copied so that no cache knows them."""
    copy = folder / "items.jsonl"
    copy.write_text(ITEMS.read_text())
    return {
        "task": "local_hellaswag",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"validation": str(copy)}},
        "output_type": "multiple_choice",
        "validation_split": "validation",
        "doc_to_text": "{{ctx}}",
        "doc_to_target": "{{label}}",
        "doc_to_choice": "{{endings}}",
        "metric_list": [
            {"metric": name, "aggregation": "mean", "higher_is_better": True}
            for name in ("acc", "acc_norm")
        ],
    }


def main(checkpoint: str) -> None:
    """Ask HFLM everything, and write what it says."""
    import shutil
    import tempfile

    import lm_eval
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    # transformers reads special tokens that are written as texts alone.
    plain = Path(tempfile.mkdtemp()) / "model"
    shutil.copytree(checkpoint, plain)
    settings = plain / "tokenizer_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "bos_token": "<s>"}))
    model = HFLM(
        pretrained=str(plain), dtype="float32", device="cpu", batch_size=4, prefix_token_id=PREFIX
    )
    with tempfile.TemporaryDirectory() as folder:
        found = lm_eval.simple_evaluate(
            model=model, tasks=[task(Path(folder))], log_samples=True, bootstrap_iters=0
        )
    samples = sorted(found["samples"]["local_hellaswag"], key=lambda each: each["doc_id"])
    rolling = [Instance("loglikelihood_rolling", {}, (text,), 0) for text in TEXTS]
    empty = [Instance("loglikelihood", {}, ("", text), 0) for text in TEXTS[::2]]
    told = {
        "max_length": model.max_length,
        "results": {
            name: found["results"]["local_hellaswag"][f"{name},none"]
            for name in ("acc", "acc_norm")
        },
        "items": [[list(each) for each in sample["filtered_resps"]] for sample in samples],
        "rolling": model.loglikelihood_rolling(rolling, disable_tqdm=True),
        "empty context": [list(each) for each in model.loglikelihood(empty, disable_tqdm=True)],
    }
    (HERE / "hflm.json").write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
