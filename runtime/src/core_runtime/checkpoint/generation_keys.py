"""The keys of generation_config.json, and the treatment of each.

Read from transformers 5.24, generation/configuration_utils.py. The file has a publisher's defaults
for ``generate``. Here options are set by the caller and the default is greedy, so a key with a
corresponding option is harmless. One without is refused if it bans or forces tokens, else reported.
"""

from __future__ import annotations

from collections.abc import Mapping

from core_runtime.checkpoint.fields import ConfigFields, JsonFiles
from core_runtime.checkpoint.keys import (
    KeyRule,
    check_keys,
    harmless,
    honoured,
    refused,
    report,
    reported,
    same,
)

FILE = "generation_config.json"
_NO_OPTION = "no option here does that"

GENERATION_KEYS: Mapping[str, KeyRule] = {
    "eos_token_id": honoured("generation ends at these tokens"),
    **same(
        "do_sample temperature top_k top_p min_p typical_p repetition_penalty max_length "
        "max_new_tokens num_return_sequences",
        harmless("the caller's options; without them generation is greedy"),
    ),
    **same(
        "bos_token_id pad_token_id decoder_start_token_id",
        harmless("the tokenizer adds the first token; padding needs no token"),
    ),
    **same(
        "suppress_tokens begin_suppress_tokens bad_words_ids sequence_bias",
        refused("it bans tokens, which no option here does"),
    ),
    **same(
        "forced_bos_token_id forced_eos_token_id forced_decoder_ids force_words_ids constraints",
        refused("it forces tokens, which no option here does"),
    ),
    "stop_strings": reported("give them as the option `stop`"),
    **same("min_length min_new_tokens", reported(_NO_OPTION, 0)),
    **same("num_beams num_beam_groups", reported(_NO_OPTION, 1)),
    **same("length_penalty encoder_repetition_penalty guidance_scale", reported(_NO_OPTION, 1.0)),
    **same(
        "no_repeat_ngram_size encoder_no_repeat_ngram_size diversity_penalty penalty_alpha "
        "epsilon_cutoff eta_cutoff",
        reported(_NO_OPTION, 0.0),
    ),
    **same(
        "top_h exponential_decay_length_penalty watermarking_config token_healing dola_layers "
        "assistant_ensemble_weight",
        reported(_NO_OPTION),
    ),
    "max_time": reported("give it as the option `timeout`"),
    "early_stopping": harmless("it counts only with num_beams"),
    **same("renormalize_logits remove_invalid_values", harmless("it changes no probability")),
    **same(
        "is_assistant num_assistant_tokens num_assistant_tokens_schedule "
        "assistant_confidence_threshold assistant_early_exit assistant_lookbehind "
        "target_lookbehind prompt_lookup_num_tokens max_matching_ngram_size use_mtp "
        "speculation_type",
        harmless("it makes the same text faster"),
    ),
    **same(
        "use_cache cache_implementation cache_config max_cache_len low_memory prefill_chunk_size "
        "compile_config disable_compile continuous_batching_config",
        harmless("how transformers runs, with the same result"),
    ),
    **same(
        "output_attentions output_hidden_states output_scores output_logits "
        "return_dict_in_generate",
        harmless("what transformers returns"),
    ),
    **same("transformers_version _from_model_config _commit_hash", harmless("how it was saved")),
}
"""The treatment of each key; one that is not here is reported."""

_REMEDY = f"Remove the key from {FILE} to generate without it."


def check_generation(files: JsonFiles) -> None:
    """Raise `UnsupportedModelError` for a key that is refused, and log those to report."""
    fields = ConfigFields(files.read_if_there(FILE), str(files.directory / FILE))
    report(check_keys(fields, GENERATION_KEYS, _REMEDY), fields.where)
