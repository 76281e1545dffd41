"""How a model from elsewhere wants to write, `generation_config.json`, as the node `decoding`.

    key                                       what becomes of it
    do_sample, num_beams                      method: sample, beam or greedy; both together refused
    temperature, top_k, top_p, min_p          the same, where it samples (top_k 50 if absent)
    num_beams, length_penalty                 beam, and the penalty with length_offset=0
    num_return_sequences, repetition_penalty  n_best, the same
    no_repeat_ngram_size, stop_strings        no_repeat_ngram; an answer ends before stop
    max_new_tokens, min_new_tokens            max_extra with max_ratio=0; min_length
    max_length, min_length                    the same of pairs, whose first id counts there, and the
                                              forced end; a length of prompt and answer limits nothing
    eos_token_id, forced_bos_token_id, ...    ids: see `attnlab.data.tokenizer`
    `NEUTRAL`                                 refused at any other value
    `SILENT`                                  changes no text; the beam search here ends only when
                                              nothing longer could win, whatever early_stopping says
    any other                                 refused, unless null or false

Where there is no such file, the same keys of `config.json` count, where older files have them.
"""

from typing import Any

from attnlab.weights.foreign import ForeignConfig

FILE = "generation_config.json"
READ = """
do_sample num_beams temperature top_k top_p min_p length_penalty num_return_sequences
repetition_penalty no_repeat_ngram_size stop_strings max_new_tokens min_new_tokens max_length
min_length forced_eos_token_id
"""
NEUTRAL: dict[str, Any] = {
    **dict.fromkeys(("num_beam_groups", "typical_p", "encoder_repetition_penalty"), 1.0),
    **dict.fromkeys(("diversity_penalty", "epsilon_cutoff", "eta_cutoff", "penalty_alpha"), 0.0),
    **{"encoder_no_repeat_ngram_size": 0, "guidance_scale": 1.0},
}
SILENT = """
bos_token_id eos_token_id pad_token_id decoder_start_token_id forced_bos_token_id early_stopping
use_cache cache_implementation cache_config transformers_version _from_model_config _commit_hash
output_attentions output_hidden_states output_scores output_logits return_dict_in_generate
remove_invalid_values renormalize_logits is_assistant num_assistant_tokens
num_assistant_tokens_schedule assistant_confidence_threshold assistant_lookbehind
target_lookbehind max_matching_ngram_size disable_compile
"""


def decoding(file: ForeignConfig) -> dict[str, Any]:
    """Returns the settings of `decoding` in a run config that `generation_config.json` beside the
    config `file` means, or without that file older keys in `file`; {} where there are none; raises
    `UserError` for a setting that attnlab does not have.

    Raises:
      UserError: a setting that no setting here means, by name.
    """
    keys, pairs = file.sibling(FILE), file.flag("is_encoder_decoder", False)
    if not keys.content:
        older = {key: file.content[key] for key in (*READ.split(), *NEUTRAL) if key in file.content}
        if not older.keys() - {"forced_eos_token_id"}:
            return {}
        keys = ForeignConfig(older, file.where)
    keys.only(**NEUTRAL)
    keys.check_keys((*READ.split(), *NEUTRAL, *SILENT.split()))
    beams, samples = keys.count("num_beams", 1), keys.flag("do_sample", False)
    if beams > 1 and samples:
        raise keys.error("do_sample", f"false beside num_beams={beams}")
    settings: dict[str, Any] = {
        "method": "beam" if beams > 1 else "sample" if samples else "greedy",
        "n_best": keys.count("num_return_sequences", 1),
        "repetition_penalty": keys.number("repetition_penalty", 1.0),
        "no_repeat_ngram": keys.count("no_repeat_ngram_size", 0, least=0),
    }
    if beams > 1:
        penalty = keys.number("length_penalty", 1.0)
        settings |= {"beam": beams, "length_penalty": penalty, "length_offset": 0}
    if samples:
        settings |= {"top_k": keys.count("top_k", 50, least=0), "min_p": keys.number("min_p", 0.0)}
        settings |= {key: keys.number(key, 1.0) for key in ("temperature", "top_p")}
    stop = keys.content.get("stop_strings")
    if stop is not None:
        settings["stop"] = (stop,) if isinstance(stop, str) else keys.names("stop_strings")
    forced = keys.content.get("forced_eos_token_id") is not None
    maximum = keys.count("max_new_tokens", 0, least=0)
    minimum = keys.count("min_new_tokens", 0, least=0)
    length, shortest = keys.count("max_length", 0, least=0), keys.count("min_length", 0, least=0)
    if pairs:
        maximum, minimum = maximum or max(0, length - 1 - forced), minimum or max(0, shortest - 1)
    elif shortest:
        raise keys.error("min_length", "0, or min_new_tokens, which leaves out the prompt")
    settings |= {"max_ratio": 0.0, "max_extra": maximum} if maximum else {}
    return {**settings, **({"min_length": minimum} if minimum else {})}
