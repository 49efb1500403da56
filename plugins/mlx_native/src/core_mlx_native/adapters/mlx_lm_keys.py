"""The keys of mlx-lm's adapter_config.json, and the treatment of each.

Read from mlx-lm 0.32.2, lora.py and tuner/utils.py, and from its history for what older versions
wrote. The file contains the complete training options, of which mlx-lm reads three keys; so an
unlisted key is reported, but within ``lora_parameters`` it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from core_runtime.checkpoint.fields import ConfigFields
from core_runtime.checkpoint.keys import (
    KeyRule,
    check_keys,
    harmless,
    honoured,
    refused,
    report,
    same,
)

_TENSORS = harmless("the tensors show which layers are adapted, and each must fit the model")
MLX_LM_KEYS: Mapping[str, KeyRule] = {
    "fine_tune_type": honoured("lora and dora; full is refused"),
    "lora_parameters": honoured("see below"),
    **same("num_layers lora_layers", _TENSORS),
    "use_dora": refused("mlx-lm before 0.18.2 wrote it for fine_tune_type: dora"),
    **same(
        "model train test data hf_dataset seed iters batch_size val_batches test_batches "
        "learning_rate lr_schedule optimizer optimizer_config max_seq_length mask_prompt "
        "grad_checkpoint grad_accumulation_steps clear_cache_threshold steps_per_report "
        "steps_per_eval save_every resume_adapter_file adapter_path config report_to "
        "project_name wandb trust_remote_code prompt_feature completion_feature",
        harmless("how it was trained"),
    ),
    "core_training": harmless("notes of `infer-cli lora train`"),
}
"""The treatment of each key of adapter_config.json; one that is not here is reported."""

MLX_LM_PARAMETERS: Mapping[str, KeyRule] = {
    "rank": honoured("the tensors must have it"),
    "scale": honoured("the factor of B A"),
    "dropout": harmless("used only in training"),
    "keys": _TENSORS,
    "alpha": refused(
        "mlx-lm before 0.14.2 multiplied the scale by alpha / rank, later versions ignore it"
    ),
}
"""The treatment of each key of ``lora_parameters``; one that is not here is refused."""

_REMEDY = "Merge the adapter with the mlx-lm version that made it (mlx_lm.fuse); load the result."
_UNKNOWN = refused("mlx-lm 0.32 does not read this key")


def check_mlx_lm(fields: ConfigFields) -> None:
    """Raise `UnsupportedModelError` for a key that is refused, and log those to report."""
    report(check_keys(fields, MLX_LM_KEYS, _REMEDY), fields.where)


def check_parameters(parameters: ConfigFields) -> None:
    """Raise `UnsupportedModelError` for a key of ``lora_parameters`` that is refused."""
    check_keys(parameters, MLX_LM_PARAMETERS, _REMEDY, _UNKNOWN)
