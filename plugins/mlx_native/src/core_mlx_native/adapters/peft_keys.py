"""The keys of PEFT's adapter_config.json, and the treatment of each.

Read from huggingface/peft 0.21: src/peft/config.py and src/peft/tuners/lora/config.py, with the
effect of each value at load from layer.py and variants.py next to it. An unlisted key is refused:
PEFT drops it with the warning that a newer version wrote it, and newer features (DoRA, aLoRA and
KaSA were such keys) change what an adapter computes.
"""

from __future__ import annotations

from collections.abc import Mapping

from core.errors import UnsupportedModelError
from core_runtime.checkpoint.fields import ConfigFields
from core_runtime.checkpoint.keys import KeyRule, check_keys, harmless, honoured, refused, same

_INITIAL = harmless("the settings of an initialisation: see `init_lora_weights`")
_TRAINING = harmless("used only in training")
_OWN_TENSORS = "it has additional tensors and a different forward pass"

PEFT_KEYS: Mapping[str, KeyRule] = {
    "peft_type": honoured("only LORA is supported"),
    "r": honoured("the rank, which the tensors must have"),
    "lora_alpha": honoured("the scale is lora_alpha / r"),
    "use_rslora": honoured("the scale is lora_alpha / sqrt(r)"),
    **same(
        "rank_pattern alpha_pattern",
        honoured("matched by layer name; regular expressions are not supported"),
    ),
    "use_dora": honoured("the row magnitudes are read"),
    "init_lora_weights": honoured(
        "values for which PEFT changes the model's own weights are refused"
    ),
    **same(
        "target_modules exclude_modules layers_to_transform",
        honoured("if they are lists, each layer with tensors must be a target"),
    ),
    "layers_pattern": harmless("the name of the list of layers, which the tensors have"),
    "task_type": refused(
        "such an adapter requires a separate head", "CAUSAL_LM", "FEATURE_EXTRACTION"
    ),
    "bias": refused("the model's biases are replaced", "none"),
    "lora_bias": refused("B has a bias"),
    "modules_to_save": refused("whole modules are replaced"),
    "trainable_token_indices": refused("rows of the embedding are replaced"),
    "target_parameters": refused("parameters outside of linear layers are adapted"),
    **same(
        "alora_invocation_tokens invocation_string",
        refused("the adapter is active only after a marker in the prompt"),
    ),
    "layer_replication": refused("the model has other layers"),
    "megatron_config": refused("its layers are Megatron's"),
    "use_qalora": refused("the inputs are pooled"),
    "use_bdlora": refused("A or B is block-diagonal"),
    "kasa_config": refused("PEFT truncates singular values of the model's own weights"),
    **same("arrow_config monteclora_config velora_config", refused(_OWN_TENSORS)),
    "enable_lora": refused("a fused linear layer is adapted in part"),  # loralib, PEFT before 0.3
    **same("loftq_config eva_config corda_config lora_ga_config", _INITIAL),
    "lora_dropout": _TRAINING,
    "fan_in_fan_out": harmless("PEFT disables it for the linear layers of these models"),
    "merge_weights": harmless("loralib's merging before computation"),
    "ensure_weight_tying": harmless("a setting of modules_to_save and of embeddings"),
    "megatron_core": harmless("it counts only with megatron_config"),
    "qalora_group_size": harmless("it counts only with use_qalora"),
    "runtime_config": harmless("PEFT ignores it in a file"),
    **same("inference_mode peft_version auto_mapping", harmless("how it was saved")),
    **same(
        "base_model_name_or_path revision",
        harmless("the adapter is used with the model that is loaded, and must fit it"),
    ),
    "core_training": harmless("notes of `infer-cli lora train`"),
}
"""The treatment of each key; one that is not here is refused."""

MERGE = "Merge the adapter into its model with PEFT (merge_and_unload), and load the merged model."
_CONVERT = (
    "Save it as a plain LoRA with PEFT, save_pretrained(..., "
    "path_initial_model_for_weight_conversion=DIR), where DIR has the adapter before training."
)
_EITHER = f"{_CONVERT} Or merge it into its model (merge_and_unload), and load the merged model."
_UNKNOWN = refused("PEFT 0.21 has no such key, and a newer one may compute otherwise with it")

INITIALISATIONS: Mapping[str, KeyRule] = {
    "true or false": harmless("A and B are zero or random; both are in the file"),
    "gaussian": harmless("A is random; it is in the file"),
    "eva": harmless("A is computed from data, and ranks differ by layer; both are in the files"),
    "orthogonal": harmless("A and B are random; both are in the file"),
    "mica": harmless("B is computed from the weights, which stay unchanged; it is in the file"),
    "pissa": refused("the principal components are removed from the weights"),
    "pissa_niter_N": refused("the principal components are removed from the weights"),
    "olora": refused("a component is removed from the weights by QR decomposition"),
    "corda": refused("a component is removed from the weights, using data not in any file"),
    "lora_ga": refused("a component is removed from the weights, using gradients not in any file"),
    "loftq": refused("the weights are quantised as set in loftq_config"),
}
"""The treatment of each value of ``init_lora_weights``."""

_NO_SUCH_VALUE = refused("PEFT 0.21 has no such value")


_REMEDIES = {"pissa": _EITHER, "olora": _EITHER, "corda": _CONVERT, "lora_ga": _CONVERT}


def check_peft(fields: ConfigFields) -> None:
    """Raise `UnsupportedModelError` for the first key with an unsupported effect."""
    check_keys(fields, PEFT_KEYS, MERGE, _UNKNOWN)
    value = fields.values.get("init_lora_weights")
    if value is None or isinstance(value, bool):
        return

    # PEFT matches some values by prefix, and some case-insensitively.
    name = value.lower() if isinstance(value, str) else ""
    kind = next((kind for kind in ("pissa", "corda") if name.startswith(kind)), name)
    known = INITIALISATIONS.get(kind, _NO_SUCH_VALUE)
    if known.verdict == "refused":
        raise UnsupportedModelError(
            f"{fields.where}: init_lora_weights={value!r:.60} is not supported: {known.why}. "
            f"{_REMEDIES.get(kind, MERGE)}"
        )
