"""Measure with PEFT which initialisations change the model's own weights (README.md).

For each value of ``init_lora_weights``: an adapter is made, a step of training is imitated, and
PEFT's logits are compared with those of the untouched model with the same A and B beside it, which
is all that a reader has who passes over the key. ``eva`` is stored as a case of its own, too.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]
from oracle.make_reference import make_prompts  # type: ignore[import-not-found]
from oracle_peft.make_adapters import (  # type: ignore[import-not-found]
    DATA,
    SIZE,
    assembled,
    load,
    logits,
    write_reference,
)
from peft import LoraConfig, PeftModel, get_peft_model  # type: ignore[import-not-found]
from peft.tuners.lora.config import (  # type: ignore[import-not-found]
    CordaConfig,
    EvaConfig,
    LoraGAConfig,
)
from peft.tuners.lora.corda import preprocess_corda  # type: ignore[import-not-found]
from peft.tuners.lora.eva import initialize_lora_eva_weights  # type: ignore[import-not-found]
from peft.tuners.lora.loraga import preprocess_loraga  # type: ignore[import-not-found]

CHECKPOINT = "llama-2-kv-heads-biased/default"
FILE = DATA.parent / "initialisations.json"
VALUES: tuple[bool | str, ...] = (
    *(True, False, "gaussian", "eva", "orthogonal", "mica"),
    *("pissa", "pissa_niter_4", "olora", "corda", "lora_ga"),
)  # loftq rounds the weights by bitsandbytes, on a GPU
MORE: dict[str, dict[str, Any]] = {
    "eva": {"eva_config": EvaConfig(rho=2.0)},
    "corda": {"corda_config": CordaConfig(corda_method="ipm")},
    "lora_ga": {"lora_ga_config": LoraGAConfig()},
}


def runner(model: Any, backward: bool = False) -> Callable[[], None]:
    """Run the model on the prompts, as CorDA and LoRA-GA ask for."""

    def run() -> None:
        for ids in make_prompts():
            tokens = torch.tensor([ids])
            if backward and len(ids) > 1:
                model(tokens, labels=tokens).loss.backward()
            elif not backward:
                with torch.no_grad():
                    model(tokens)

    return run


def batches() -> list[dict[str, Any]]:
    ids = [prompt for prompt in make_prompts() if len(prompt) >= 8]
    return [
        {"input_ids": torch.tensor([one]), "attention_mask": torch.ones((1, len(one)), dtype=int)}
        for one in ids
    ]


def adapted(value: bool | str, directory: Path) -> Any:
    """A model with an adapter that began like this and has learned something."""
    torch.manual_seed(7)
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=2,
        lora_alpha=8,
        target_modules=["q_proj", "down_proj"],
        init_lora_weights=value,
        **MORE.get(str(value), {}),
    )
    model = load(directory)
    if value == "corda":
        preprocess_corda(model, config, runner(model))
    if value == "lora_ga":
        preprocess_loraga(model, config, runner(model, backward=True))
    model = get_peft_model(model, config)
    if value == "eva":
        initialize_lora_eva_weights(model, batches(), show_progress_bar=False)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_A" in name or "lora_B" in name:
                weight.add_(SIZE * torch.randn_like(weight))
    return model.eval()


def saved(model: Any, directory: Path) -> Path:
    """The adapter's files, without a path of this machine."""
    model.save_pretrained(directory)
    (directory / "README.md").unlink(missing_ok=True)
    config = directory / "adapter_config.json"
    settings = json.loads(config.read_text())
    settings["base_model_name_or_path"] = None
    config.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
    return config


def beside(config: Path, directory: Path) -> Any:
    """The untouched model with the adapter beside it, as a reader makes it who ignores the key."""
    settings = json.loads(config.read_text())
    config.write_text(json.dumps({**settings, "init_lora_weights": True}))
    return PeftModel.from_pretrained(load(directory), config.parent).eval()


def main() -> None:
    """Measure all values, and write the keys that PEFT has."""
    moved_by = {}
    with tempfile.TemporaryDirectory() as name:
        directory = assembled(CHECKPOINT, Path(name) / "model")
        for value in VALUES:
            model = adapted(value, directory)
            rows = torch.tensor(logits(model))
            place = Path(name) / str(value)
            config = saved(model, place)
            if value == "eva":
                shutil.copytree(place, DATA / "eva", dirs_exist_ok=True)
                write_reference("eva", CHECKPOINT, rows.tolist())
            other = torch.tensor(logits(beside(config, directory)))
            moved_by[json.dumps(value).strip('"')] = round(float((rows - other).abs().max()), 6)
    keys = sorted(LoraConfig().to_dict())
    parts = (f'"moved_by": {json.dumps(moved_by)}', f'"keys": {json.dumps(keys)}')
    FILE.write_text("{" + ",\n ".join(parts) + "}\n")


if __name__ == "__main__":
    main()
