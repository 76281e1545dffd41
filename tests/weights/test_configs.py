"""Every key of `generation_config.json` is taken, translated, refused by name, or changes no text; and
what no model of transformers can say of a system is named.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from attnlab import weights
from attnlab.decoding.settings import validate
from attnlab.errors import UserError
from attnlab.weights.foreign import ForeignConfig
from attnlab.weights.generation import NEUTRAL, SILENT, decoding
from attnlab.weights.writing import config_of, with_defaults
from tests.weights import models

GREEDY = {"method": "greedy", "n_best": 1, "repetition_penalty": 1.0, "no_repeat_ngram": 0}
SAMPLE = {**GREEDY, "method": "sample", "top_k": 50, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}
BEAM = {**GREEDY, "method": "beam", "beam": 4, "length_penalty": 1.0, "length_offset": 0}
FILTERS = {"temperature": 0.6, "top_k": 0, "top_p": 0.9, "min_p": 0.1}
NINE = {"max_ratio": 0.0, "max_extra": 9}
PAIRS = "pairs/bart"
ENDS = {"min_length": 3, "forced_eos_token_id": 2, "num_beams": 4}
TAKEN: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("gpt2", {"eos_token_id": [0, 1]}, GREEDY),
    ("gpt2", {"do_sample": True}, SAMPLE),
    ("gpt2", {"do_sample": True, **FILTERS}, {**SAMPLE, **FILTERS}),
    ("gpt2", {"temperature": 0.6, "top_k": 5}, GREEDY),
    ("gpt2", {"num_beams": 4, "early_stopping": True}, BEAM),
    ("gpt2", {"num_beams": 4, "length_penalty": 2.0}, {**BEAM, "length_penalty": 2.0}),
    ("gpt2", {"num_beams": 4, "num_return_sequences": 2}, {**BEAM, "n_best": 2}),
    ("gpt2", {"repetition_penalty": 1.2}, {**GREEDY, "repetition_penalty": 1.2}),
    ("gpt2", {"no_repeat_ngram_size": 3}, {**GREEDY, "no_repeat_ngram": 3}),
    ("gpt2", {"stop_strings": "end"}, {**GREEDY, "stop": ("end",)}),
    ("gpt2", {"stop_strings": ["a", "b"]}, {**GREEDY, "stop": ("a", "b")}),
    ("gpt2", {"max_length": 4096}, GREEDY),
    ("gpt2", {"max_new_tokens": 9, "min_new_tokens": 2}, {**GREEDY, **NINE, "min_length": 2}),
    (PAIRS, {"max_length": 11, **ENDS}, {**BEAM, **NINE, "min_length": 2}),
    (PAIRS, {"max_length": 10}, {**GREEDY, **NINE}),
    *(("gpt2", {key: value}, GREEDY) for key, value in NEUTRAL.items()),
    *(("gpt2", {key: 1}, GREEDY) for key in SILENT.split()),
    *(("gpt2", {key: None}, GREEDY) for key in ("bad_words_ids", "suppress_tokens", "unheard_of")),
)
REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"do_sample": True, "num_beams": 4}, "do_sample=True; expected false beside num_beams=4"),
    ({"min_length": 3}, "min_length=3; expected 0, or min_new_tokens"),
    ({"bad_words_ids": [[1]]}, "bad_words_ids=.* expected nothing, for the key is not known here"),
    ({"suppress_tokens": [1]}, "suppress_tokens"),
    ({"length_penalty": -1.0, "num_beams": 2}, "length_penalty=-1.0; expected a number from 0"),
    ({"num_beams": "4"}, "num_beams='4'; expected a whole number"),
    ({"stop_strings": [1]}, "stop_strings"),
    *(({key: 7}, f"{key}=7 is not computed here") for key in NEUTRAL),
)


def read(name: str, content: Any, path: Path) -> dict[str, Any]:
    """What a folder with such a file says of decoding."""
    (path / "generation_config.json").write_text(json.dumps(content))
    return decoding(ForeignConfig(models.described(name)["config"], "config.json", path))


@pytest.mark.parametrize(("name", "content", "expected"), TAKEN)
def test_what_is_taken(name: str, content: Any, expected: Any, tmp_path: Path) -> None:
    assert read(name, content, tmp_path) == expected
    validate(expected)


@pytest.mark.parametrize(("content", "words"), REFUSED)
def test_what_is_refused(content: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=words):
        read("gpt2", content, tmp_path)


def test_older_files_say_it_in_their_config(tmp_path: Path) -> None:
    """Ids alone say nothing of decoding; then it is as without such a file."""
    older = models.folder(PAIRS, tmp_path / "older", num_beams=4, no_repeat_ngram_size=3)
    actual = weights.run_config(older)["decoding"]
    assert (actual["method"], actual["beam"], actual["no_repeat_ngram"]) == ("beam", 4, 3)
    plain = weights.run_config(models.folder(PAIRS, tmp_path / "plain"))["decoding"]
    assert "method" not in plain and "length_offset" not in plain


ROPE = {"name": "differential", "positions": "rope"}
SOFT = {"name": "multihead", "heads": 4, "positions": "rope", "alignment": "entmax"}
UNSAID: list[tuple[str, dict[str, Any], str, str]] = [
    ("llama", {"attention": SOFT}, "", "alignment.name='entmax'"),
    ("llama", {"norm": "post"}, "", "system.norm='post', it has 'pre'"),
    ("llama", {"logit_cap": 3.0}, "", "system.logit_cap=3.0"),
    ("llama", {"attention": ROPE}, "llama", "multihead attention with rope"),
    ("llama", {}, "lama", "did you mean 'llama'"),
    ("llama", {}, "gpt2", "nearest is 'gpt2': it has learned positions"),
    ("encoders/bert_masked", {"norm": "pre"}, "", "system.norm='pre', it has 'post'"),
    (
        "encoders/bert_masked",
        {},
        "llama",
        "system=bert has no counterpart .*: llama; decoder, bert",
    ),
    ("pairs/t5", {"norm": "post"}, "", "nearest is 't5': system.norm='post', it has 'pre'"),
    ("images/vit", {"class_token": False}, "", "system.class_token=False, it has True"),
    ("images/vit", {"positions": {"name": "sinusoidal_2d"}}, "", "it has learned positions"),
    ("images/resnet50", {"strided": "first"}, "", "system.strided='first', it has 'second'"),
]
"""Of golden models, what is changed in them, the kind that is asked for, and what its line says."""


@pytest.mark.parametrize(("name", "change", "kind", "message"), UNSAID)
def test_what_cannot_be_said_is_named(
    name: str, change: dict[str, Any], kind: str, message: str, tmp_path: Path
) -> None:
    node = weights.system(models.folder(name, tmp_path))
    with pytest.raises(UserError, match=message):
        config_of(with_defaults({**node, **change}), *([kind] if kind else []))
    with pytest.raises(UserError, match="system=lstm_lm has no counterpart"):
        config_of({"name": "lstm_lm"})
