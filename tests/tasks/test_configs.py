"""Every config that attnlab ships passes the checks of its task; what a task cannot do is refused in
one line, before data is read. Every registered part in every slot of every small config, by shapes
alone: it fits with its defaults, or is refused in one line that names the setting.
"""

import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attnlab import config as configs
from attnlab.config import find_file
from attnlab.config.registry import Table
from attnlab.config.tree import ConfigNode
from attnlab.errors import UserError
from attnlab.layers import CELLS, FEED_FORWARDS
from attnlab.layers.gates import GATES
from attnlab.tasks import TASKS

FOLDER = Path(__file__).parents[2] / "configs"
FILES = sorted({path.stem for path in FOLDER.glob("*.py")} - {"pretrained"})

OTHERS = {"span_corruption": ("t5", "t5_gated", "bart")}
"""The systems of a file that takes those of another."""


def systems(file: str) -> list[str]:
    """The names of the systems of a config file."""
    names = runpy.run_path(str(find_file(f"configs/{file}.py", "config file")))
    return [*(names.get("SYSTEMS") or names.get("_SYSTEMS") or OTHERS[file])]


def load(file: str, system: str, overrides: list[str] | None = None) -> Any:
    return configs.load(f"configs/{file}.py:{system}", overrides or [])


AGAIN = ("inference", "multi30k", "span_corruption", "tatoeba")
"""Files whose systems stand in other files too."""


def shipped(file: str, name: str) -> Any:
    """A case; models as large as published ones, and those of other files, in the full mode alone."""
    large = name.endswith(("_paper", "_base", "_small")) or file in AGAIN
    case = {"file": file, "system": (name,)}  # a file is a part of a case, its system none
    return pytest.param(case, id=f"{file}:{name}", marks=pytest.mark.full if large else ())


SHIPPED = [shipped(file, name) for file in FILES for name in systems(file)]


@pytest.mark.parametrize("case", SHIPPED)
def test_every_config_passes_the_checks_of_its_task(case: dict[str, Any]) -> None:
    config = load(case["file"], *case["system"])
    TASKS.resolve(config.task).check(config)


def test_published_settings_train_as_their_papers_did() -> None:
    for name in systems("translation"):
        training, published = load("translation", name).training, name.endswith(("_paper", "_base"))
        assert (training.steps > 10_000) == published
        without_bias = published or name == "transformer"
        assert (training.output_bias == "zeros") == without_bias
    for name in systems("language_modelling"):
        texts = load("language_modelling", name).batch.texts
        assert texts == "apart" or (texts in ("joined", "crops") and name.endswith("_paper"))


SEARCH = "translation:rnnsearch"
TELL = "captioning:show_attend_tell"
STACKED = "visual_questions:stacked_attention"
DETR = "detection:detr"
SEGMENTER = "segmentation:segmenter"
CNN = "image_classification:cnn"
MASKED = "masked_language_modelling:transformer"
LSTM = "language_modelling:lstm"
WRITER = "translation:transformer"
DECODER = "language_modelling:decoder"
ANSWERS = "question_answering:transformer"
SOUNDS = "g2p:rnnsearch"
POOLING = "classification:bilstm_pooling"
HOPS = "classification:self_attentive"
PAIRED = "inference:attention_pooling"
DEEP = "system.backbone.widths=2,2,2,2,2,2"
GATE = "system.backbone.gate=non_local system.backbone.gate.alignment=hard"
ENCODER = "system=encoder system.attention=multihead system.positions=learned"
WINDOW = "system=attention_lm system.attention=single system.window=10"
CARRIED = "system.carry=state batch.texts=joined"
LOOKING = "system=attention_lm system.attention=hops"
SPANNED = "system=lstmn_lm system.attention=single"
ANOTHER, DATA, PARTS = "another kind of system", "another kind of data", "microbatches"
SMALL, NUMBER, WORD, PENALTY = "small images", "a number", "a word", "a penalty"
REFUSED = [
    (TELL, SMALL, DEEP, "cnn halves images until 64 x 64"),
    (TELL, NUMBER, "system.backbone.widths=4,6 system.features=7", "set system.features=6"),
    (TELL, ANOTHER, "system=seq2seq", "captioning_transformer"),
    (TELL, DATA, "data=dates", r"needs a method captions\(split\)"),
    (TELL, PARTS, "training.accumulate=2", "statistics of norms in the system"),
    (TELL, PENALTY, GATE, "config.system.backbone: its attention samples"),
    (TELL, WORD, "batch.sizes=5", "sizes"),
    (STACKED, SMALL, DEEP, "cnn halves images until 64 x 64"),
    (STACKED, ANOTHER, "system=cnn", "expected a class derived from .*bottom_up"),
    (STACKED, DATA, "data=shapes", r"needs a method visual_questions\(split\)"),
    (STACKED, PARTS, "training.accumulate=2", "accumulate=2: norms of system.backbone have"),
    (STACKED, ANOTHER, "system=bottom_up system.attention=hops", "Hops does not support values"),
    (DETR, ANOTHER, "system=cnn", "expected a class derived from .*detr"),
    (DETR, DATA, "data=shapes", r"needs a method objects\(split\), such as scenes"),
    (DETR, PARTS, "training.accumulate=2", "accumulate=2: norms of system=detr"),
    (DETR, NUMBER, "objective.overlap=-1", "config.objective.overlap=-1"),
    (SEGMENTER, ANOTHER, "system=cnn", "expected a class derived from .*segmenter"),
    (SEGMENTER, DATA, "data=shapes", r"needs a method masks\(split\), such as scenes"),
    (SEGMENTER, PARTS, "training.accumulate=2", "accumulate=2: "),
    (SEGMENTER, PARTS, "training.accumulate=2 system.normalisation=layer_norm", "system=segmenter"),
    (SEGMENTER, SMALL, f"system.backbone=cnn {DEEP},2", "cnn halves images until 128 x 128"),
    (SEGMENTER, DATA, "data=mask_folder data.classes=()", "config.data.classes is empty"),
    (CNN, SMALL, "data.side=12 system.widths=2,2,2,2", "cnn halves images until 16 x 16"),
    (CNN, ANOTHER, "system=bilstm_pooling", "expected a class .*cnn, resnet, glimpses"),
    (CNN, DATA, "data=dates", r"needs a method images\(split\)"),
    (CNN, PARTS, "training.accumulate=2", "accumulate=2: the statistics of system.normal"),
    (CNN, WORD, "vocabulary.size=5", "vocabulary"),
    (CNN, WORD, "batch.max_length=5", "max_length"),
    (CNN, NUMBER, "augmentation.crop=-1", "config.augmentation.crop=-1"),
    (SEARCH, NUMBER, "system.attention.score.hidden=0", "hidden"),
    (SEARCH, NUMBER, "decoding.beam=2 decoding.n_best=3", "n_best=3 is more than decoding.beam=2"),
    (SEARCH, ANOTHER, "system=top_down system.attention=single", "derived from .*Seq2Seq"),
    (WRITER, WORD, "training.output_bias=unigram", "out/bias .* each token; set it to 'zeros'"),
    (SEARCH, PENALTY, "auxiliary.hops=0.5", "hops=0.5: nothing .* such a loss; .*doubly_stoch"),
    (SEARCH, PENALTY, "auxiliary.hosp=0.5", "hosp: no such key; did you mean 'auxiliary.hops'"),
    (SEARCH, PENALTY, "auxiliary.hops=-1", "hops=-1.0: expected a number of at least 0"),
    (SEARCH, PENALTY, "system.attention=hops", "hops=0.0: 4 hops without a penalty weight may"),
    (SEARCH, WORD, "reinforce.reward=togo", "reinforce.reward='togo'; did you mean 'to_go'"),
    (SEARCH, NUMBER, "reinforce.decay=1 system.attention.alignment=hard", "at least 0 and below 1"),
    (SEARCH, NUMBER, "reinforce.weight=-0.5", "weight=-0.5: expected a number of at least 0"),
    (HOPS, PENALTY, "auxiliary.hops=0", "hops=0.0: 4 hops without a penalty weight"),
    (POOLING, PENALTY, "auxiliary.hops=0.1", "nothing in this system hands out such a loss"),
    (HOPS, ANOTHER, "system=rnn_encoder_decoder", "derived from .*Classifier; .*bilstm_pooling"),
    (HOPS, DATA, "data=dates", "needs a method labelled"),
    (PAIRED, NUMBER, "system.width=5 system.attention=multihead", "width=10.*heads=8|divisible"),
    (MASKED, WORD, "vocabulary.reserved=0", r"set config\.vocabulary\.reserved=1"),
    (MASKED, NUMBER, "batch.max_length=12 system.positions.length=9", "but positions end at 9"),
    (MASKED, NUMBER, "masking.hidden=0.8 masking.random=0.3", "together they are shares"),
    (MASKED, NUMBER, "masking.rate=0.0", "masking.rate"),
    (MASKED, WORD, "batch.texts=joined", "batch.texts"),
    (MASKED, WORD, "system.attention.visibility=causal", "visibility"),
    (MASKED, ANOTHER, "system=lstm_lm", "TokenClassifier; choose from: encoder, bert"),
    (LSTM, ANOTHER, ENCODER, "system=encoder: expected a class derived from .*Language"),
    (LSTM, WORD, "batch.texts=packed", "system=lstm_lm cannot keep the texts of a row apart"),
    (DECODER, NUMBER, "batch.texts=packed batch.max_length=170", "but positions end at 160"),
    (DECODER, ANOTHER, "batch.texts=packed system.attention=recurrent", "would share its state"),
    (LSTM, ANOTHER, "system=rnn_encoder_decoder", "derived from .*protocol.LanguageModel"),
    (LSTM, WORD, "batch.texts=in_turns", "config.batch.texts='in_turns'; did you mean 'in_turn'"),
    (LSTM, WORD, "batch.texts=jined", "config.batch.texts='jined'; did you mean 'joined'"),
    (LSTM, NUMBER, "batch.size=0", "config.batch.size=0: expected a whole number"),
    (LSTM, WORD, "training.output_bias=unigrams", "'unigrams'; did you mean 'unigram'"),
    (LSTM, NUMBER, "decoding.method=beam decoding.coverage=0.1", "needs attention weights"),
    (LSTM, NUMBER, f"{WINDOW} batch.texts=apart batch.max_length=9", "window=10: .*take 9 or less"),
    (LSTM, NUMBER, f"{WINDOW} {CARRIED} batch.max_length=5", "window=10: .*take 5 or less"),
    (LSTM, PENALTY, f"{LOOKING} system.window=4", "hands out the loss 'hops'; set .*, or to None"),
    (LSTM, NUMBER, f"{SPANNED} system.span=50", "system.span=50: .*or less"),
    ("language_modelling:lstn", WORD, "", "no system 'lstn'; did you mean .*'lstm'"),
    ("classification:self_attentiv", WORD, "", "did you mean .*self_attentive"),
    ("tagging:bilstm", ANOTHER, "system=bilstm_pooling", "expected a class derived from"),
    ("diagnostics:multihead", ANOTHER, "system=bilstm_tagger", "expected a class derived"),
    (ANSWERS, NUMBER, "passages.stride=20 passages.question=26", "question=26: .*max_length=48"),
    ("span_corruption:t5", NUMBER, "vocabulary.reserved=0", "0 sentinels, .*reserved=2"),
    (SOUNDS, WORD, "vocabulary.shared=true", "='spaced': a shared vocabulary has one kind"),
    (SOUNDS, WORD, "vocabulary.target_kind=spacd", "kind='spacd'; did you mean 'spaced'"),
]
CASES = [
    {"config": config, "mistake": mistake, "given": (overrides, words)}
    for config, mistake, overrides, words in REFUSED
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['config']}-{case['given'][1]}")
def test_what_a_task_cannot_do_is_refused_in_one_line(case: dict[str, Any]) -> None:
    overrides, words = case["given"]
    with pytest.raises(UserError, match=words) as caught:
        config = load(*case["config"].split(":"), overrides.split())
        TASKS.resolve(config.task).check(config)
    assert "\n" not in str(caught.value)


LIGHT = [
    (file, name)
    for file in FILES
    if file not in AGAIN
    for name in systems(file)
    if not name.endswith(("_paper", "_base", "_small"))
]
SETTING = r"config\.\w+\.|system[.=]|auxiliary\."
"""How a refusal names what to set."""
FITTING = (CELLS, FEED_FORWARDS, GATES)
"""Tables whose parts all fit everywhere; what the others cannot do depends on what is asked of them."""


def slots(config: Any) -> Iterator[tuple[str, Table]]:
    """The settings of a config's system that hold parts, and the table of each."""
    tree = configs.from_dict(configs.to_dict(config))
    below = [ConfigNode(tree, "", type(config)).child("system")]
    while below:
        node = below.pop()
        yield from ((node.full_name(key), table) for key, table in node.tables.items())
        below += node.children()


def _cases() -> list[Any]:
    """One config for each part in a slot of a system. What is drawn by default has every file and
    every slot; systems and parts are numbered, for numbers are all alike to the sample.
    """
    actual = {}
    for place, (file, name) in enumerate(LIGHT, 2):
        config = load(file, name)
        for slot, table in slots(config):
            for number, part in enumerate(table.names(), 2):
                drawn = {"file": file, "slot": slot, "part": number, "config": place}
                id_of = f"{file}:{name}-{slot}-{part}"
                actual.setdefault((config.system.name, slot, part), pytest.param(drawn, id=id_of))
    return list(actual.values())


@pytest.mark.parametrize("case", _cases())
def test_every_part_fits_every_slot_or_is_refused_by_its_setting(case: dict[str, Any]) -> None:
    config = LIGHT[case["config"] - 2]
    table = dict(slots(load(*config)))[case["slot"]]
    try:
        tried = load(*config, [f"{case['slot']}={table.names()[case['part'] - 2]}"])
        TASKS.resolve(tried.task).check(tried)
    except UserError as error:
        assert "\n" not in str(error)
        assert re.search(SETTING, str(error)), f"names no setting: {error}"
        assert table not in FITTING, error
        assert "sequences have up to" not in str(error), "a default does not fit"
