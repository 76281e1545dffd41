"""What holds for the data of every kind of task: one row of a table for each. What is longer than
`batch.max_length` is treated by one rule in all splits, in every task that has such a rule and by every
rule that it has, and each split says so.
"""

import typing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from attnlab import config as configs
from attnlab.config import schema_of
from attnlab.data import SOURCES
from attnlab.data.asked import AskedTexts
from attnlab.data.corpus import Corpus
from attnlab.data.dataset import Dataset, fingerprint_of_texts, treat_long_examples
from attnlab.data.images.annotated import Boxed, Captioned, ImageData, Labelled, Segmented
from attnlab.data.images.regions import BoxedData, SegmentedData
from attnlab.data.images.texts import Asked, CaptionData, Question, QuestionData
from attnlab.data.labelled import LabelledTexts
from attnlab.data.questions import Questions
from attnlab.data.settings import Buckets
from attnlab.data.tagged import TaggedTexts
from attnlab.data.text import Texts
from attnlab.tasks import TASKS
from tests.refusals import check_refused

WORDS = {"kind": "spaced", "size": 300, "min_frequency": 1}
SIZES = {"examples": 9, "valid": 4, "test": 3}
SCENES = {"name": "scenes", "side": 20, "grid": 2, "small": 3, "large": 3, "most": 2, "jitter": 1}
KINDS: dict[type[Dataset[Any]], dict[str, Any]] = {
    Corpus: {"name": "grammar"},
    Texts: {"name": "associations"},
    LabelledTexts: {"name": "entailment"},
    TaggedTexts: {"name": "agreement"},
    AskedTexts: {"name": "mqar"},
    Questions: {"name": "deeds"},
    ImageData: {"name": "shapes", "label": "shape", "side": 24},
    CaptionData: SCENES,
    BoxedData: SCENES,
    SegmentedData: SCENES,
    QuestionData: {"name": "sort_of_clevr"},
}
KEPT = {
    LabelledTexts: "vocabulary or labels",
    TaggedTexts: "vocabulary or tags",
    CaptionData: "vocabulary, mean and deviation",
    QuestionData: "vocabulary, answers, mean and deviation",
    **dict.fromkeys((ImageData, BoxedData, SegmentedData), "classes, mean and deviation"),
}
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def load(kind: type[Dataset[Any]], *arguments: Any, **changes: Any) -> Dataset[Any]:
    return kind.load({**KINDS[kind], **SIZES}, {**WORDS, **changes}, *arguments)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*.json")}


@every_kind
def test_what_is_learned_is_kept_and_training_not_read_again(
    kind: type[Dataset[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load(kind, tmp_path)
    assert first.splits == ("train", "valid") and not [*tmp_path.iterdir()]
    assert [first.size(split) for split in first.splits] == [
        (9, 4)[place] * (20 if kind is QuestionData else 1) for place in (0, 1)
    ]
    first.save(tmp_path)
    reads, read = [], getattr(type(first.source), kind.method)

    def noting(source: Any, split: str) -> Any:
        reads.append(split)
        return read(source, split)

    monkeypatch.setattr(type(first.source), kind.method, noting)
    again = load(kind, tmp_path, ("valid",))
    assert again.splits == ("valid",) and again.about("valid") == first.about("valid")
    assert reads == (["train", "valid"] if kind.guessing else ["valid"])
    assert again.fingerprints == {"valid": first.fingerprints["valid"]}
    assert again.fingerprints["valid"] != first.fingerprints["train"]
    batches = (data.examples["valid"].batch(np.array([2, -1]), 99) for data in (first, again))
    for ours, theirs in zip(*(batch.items() for batch in batches), strict=True):
        np.testing.assert_equal(ours, theirs)


@every_kind
def test_only_training_is_learned_from(kind: type[Dataset[Any]], tmp_path: Path) -> None:
    """Whether it is asked for or not, and whatever is read beside it; each file is needed."""
    for name, splits in (("test", ("test",)), ("all", ("train", "valid", "test"))):
        load(kind, None, splits).save(tmp_path / name)
    assert files(tmp_path / "test") == files(tmp_path / "all")
    assert kind.kept == KEPT.get(kind, "vocabulary")  # "has lost its ..."
    for path in (tmp_path / "all").rglob("*.json"):
        content = path.read_bytes()
        path.unlink()
        assert not kind.saved(tmp_path / "all")
        path.write_bytes(content)
        assert kind.saved(tmp_path / "all")


@every_kind
def test_other_sources_and_settings_are_refused(kind: type[Dataset[Any]], tmp_path: Path) -> None:
    other = "dates" if "images" in kind.parts else "shapes"
    words = "needs a source with texts" if kind is Texts else rf"needs a method {kind.method}\(spl"
    words = rf"config.data={other}: .*{words}.*{kind.such_as}"
    check_refused(words, kind.load, {"name": other}, WORDS)
    if {"vocabularies", "target"} & {*kind.parts}:
        load(kind, reserved=2).save(tmp_path)
        for settings in ({"reserved": 2, "lowercase": True}, {}):
            words = r"other settings than config.*take another"
            check_refused(words, load, kind, tmp_path, **settings)


PIXELS = np.zeros((2, 8, 10, 3), np.uint8)
LOW, BOX, BLACK = PIXELS[:, :4], np.array([[1, 2, 3, 4]]), np.zeros((2, 8, 10), np.int32)
CAT, DOG = (Question(number, "what is it", answer) for number, answer in enumerate(("cat", "dog")))
GIVEN: dict[type[Dataset[Any]], Any] = {
    ImageData: Labelled(PIXELS, ["a", "b"]),
    CaptionData: Captioned(PIXELS, ["one", "two"]),
    BoxedData: Boxed(PIXELS, [["a"], []], [BOX, np.zeros((0, 4), int)], ("a", "b")),
    SegmentedData: Segmented(PIXELS, BLACK, ("a",)),
    QuestionData: Asked([CAT, DOG], lambda: PIXELS),
}
REFUSED: list[tuple[type[Dataset[Any]], str, dict[str, Any], str]] = [
    (ImageData, "train", {"labels": ["a"]}, "the train split has 2 images and 1 labels"),
    (ImageData, "train", {"labels": [1, 1]}, "no label but '1'; there is nothing to tell apart"),
    (ImageData, "train", {"images": PIXELS[:0], "labels": []}, "split has uint8 .*at least 1"),
    (ImageData, "train", {"images": PIXELS / 2}, r"has float64 \[2, 8, 10, 3\]; expected uint8"),
    (ImageData, "valid", {"images": LOW}, "images of 4 x 10 x 3, the training split of 8 x 10 x 3"),
    (ImageData, "valid", {"labels": [12, "a"]}, "the label '12', which the training split does"),
    (CaptionData, "train", {"captions": ["one"]}, "the train split has 2 images and 1 captions"),
    (CaptionData, "train", {"images": PIXELS / 2}, "has float64"),
    (CaptionData, "valid", {"images": LOW}, "images of 4 x 10 x 3, the training split of 8 x 10"),
    (BoxedData, "train", {"boxes": [BOX - [[-5, 0, 0, 0]], []]}, "image 1 .row 6, column 2, 3 hi"),
    (BoxedData, "train", {"boxes": [BOX - [[0, 3, 0, 0]], []]}, "is not within 8 x 10 pixels"),
    (BoxedData, "train", {"boxes": [BOX * [1, 1, np.nan, 1], []]}, "nan high, 4.0 wide. is not w"),
    (BoxedData, "train", {"boxes": [BOX * [1, 1, 0, 1], []]}, "0 high, 4 wide"),
    (BoxedData, "train", {"boxes": [np.zeros((2, 4)), []]}, "image 1 has 1 labels and 2 boxes"),
    (BoxedData, "train", {"boxes": [[]]}, "2 images, 2 lists of labels, 1 of boxes and 0 of what"),
    (BoxedData, "train", {"unlearned": [[("c", BOX[0], True)], []]}, "a crowd of 'c'; choose"),
    (BoxedData, "train", {"labels": [["c"], []]}, "image 1 has the label 'c'"),
    (BoxedData, "train", {"labels": [[], []], "boxes": [[], []]}, "has no object"),
    (BoxedData, "train", {"images": np.zeros((2, 8, 10))}, "has float64"),
    (BoxedData, "valid", {"images": LOW}, "images of 4 x 10 x 3, the training split of 8 x 10 x 3"),
    (BoxedData, "valid", {"classes": ("b", "a")}, "split has the classes b, a, training a, b"),
    (SegmentedData, "train", {"images": PIXELS / 2}, "has float64"),
    (SegmentedData, "train", {"masks": BLACK[:, 1:]}, "expected one number for each pixel"),
    (SegmentedData, "train", {"masks": BLACK + 2}, r"numbers 2 ... 2; expected -1 .* 1"),
    (SegmentedData, "train", {"classes": ()}, "has 0 classes"),
    (SegmentedData, "train", {"masks": BLACK - 1}, "no pixel that counts: all are left open"),
    (SegmentedData, "valid", {"images": LOW, "masks": BLACK[:, :4]}, "images of 4 x 10 x 3, the"),
    (SegmentedData, "valid", {"classes": ("b",)}, "the valid split has the classes b, training a"),
    (QuestionData, "train", {"questions": []}, "the train split has no question"),
    (QuestionData, "train", {"questions": [Question(0, " ", "a")]}, "question 1 is ' ', its answ"),
    (QuestionData, "train", {"questions": [DOG]}, "no label but 'dog'"),
    (QuestionData, "train", {"questions": [CAT, DOG._replace(image=2)]}, "2 images and a question"),
    (QuestionData, "train", {"images": lambda: PIXELS / 2}, "has float64 .*; expected uint8"),
    (QuestionData, "valid", {"images": lambda: LOW}, "images of 4 x 10 x 3, the training split of"),
]


@pytest.mark.parametrize(("kind", "split", "changes", "words"), REFUSED)
def test_a_source_that_is_not_as_agreed_is_refused(
    kind: type[Dataset[Any]],
    split: str,
    changes: dict[str, Any],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    splits = dict.fromkeys(("train", "valid"), GIVEN[kind])
    splits[split] = GIVEN[kind]._replace(**changes)
    source = SimpleNamespace(**{kind.method: splits.__getitem__})
    monkeypatch.setattr(kind, "of_config", lambda data: source)
    check_refused(words, kind.load, {"name": "given"}, WORDS)


def test_names_of_earlier_versions_are_told() -> None:
    with pytest.raises(AttributeError, match="Corpus has no attribute 'pairs'; it is 'rows' now"):
        load(Corpus).pairs  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'nothing'$"):
        load(Corpus).nothing  # noqa: B018


def test_the_fingerprint_of_texts_sees_every_change() -> None:
    pairs = [("a", "b"), ("c", "d")]
    others = [
        *([("a", "b")], pairs[::-1], [("ab", ""), ("c", "d")], [("a", "b"), ("c", "d ")]),
        *([("b", "a"), ("c", "d")], [("a", "b"), ("c", "x")], [("a", "b"), ("x", "d")]),
    ]
    for counted in (False, True):
        prints = [fingerprint_of_texts(iter(rows), counted) for rows in (pairs, *others)]
        assert len({*prints}) == 8 and prints[0] == fingerprint_of_texts(pairs, counted)
    rows = [[("a", "b c", "x")], [("a b", "c", "x")], [("ab c", "x")], [("a", "b", "cx")]]
    assert len({fingerprint_of_texts(row, counted=True) for row in rows}) == 4


@pytest.mark.parametrize(("asked", "name"), [("texts", "text"), ("pairs", "table")])
def test_what_reads_no_data_is_told_what_to_add(asked: str, name: str) -> None:
    source = SOURCES.resolve("none")()
    check_refused(f"no test split; add .*--config.data={name}", getattr(source, asked), "test")


OF = ["data.examples=60", "data.valid=20"]
PAIRS = [f"data.of.{one.removeprefix('data.')}" for one in OF]
# Of every task with the setting: a config, a length that some or all of its texts exceed, overrides.
FILES: dict[str, tuple[int, list[str]]] = {
    "language_modelling.py:decoder": (30, OF),
    "masked_language_modelling.py:transformer": (12, PAIRS),
    "classification.py:transformer": (45, OF),
    "inference.py:bilstm_pooling": (8, OF),
    "tagging.py:transformer": (12, OF),
    "question_answering.py:transformer": (40, OF),
    "translation.py:transformer": (20, OF),
    "g2p.py:transformer": (9, OF),
    "text_to_text.py:t5": (20, OF),
    "captioning.py:transformer": (10, OF),
    "visual_questions.py:cnn_lstm": (11, OF),
    "diagnostics.py:linear": (60, OF),
}


def rules(config: Any) -> tuple[str, ...]:
    """The values of `batch.longer` in the config of a task; none where there is no such setting."""
    node = typing.get_type_hints(schema_of(config))["batch"]
    return typing.get_args(typing.get_type_hints(node).get("longer"))


CASES = [
    (file, rule)
    for file in FILES
    for rule in rules({"task": configs.read_config_file(f"configs/{file}")["task"]})
]


def test_every_task_with_the_setting_is_tried() -> None:
    ours = {name for name in TASKS.names() if rules({"task": name})}
    assert {configs.read_config_file(f"configs/{file}")["task"] for file in FILES} == ours


@pytest.mark.parametrize(("file", "rule"), CASES)
def test_one_rule_for_all_splits(file: str, rule: str) -> None:
    length, overrides = FILES[file]
    settings = [f"batch.max_length={length}", f"batch.longer={rule}"]
    if isinstance(configs.load(f"configs/{file}", []).batch, Buckets):
        settings.append(f"batch.buckets={length}")
    config = configs.load(f"configs/{file}", [*settings, *overrides])
    kind = TASKS.resolve(config.task)
    data = kind.read(config, None, ("train", "valid"))
    before = getattr(data, "examples", None) or data.ids
    counts = {
        split: (int((one.lengths > length - kind.extra_tokens).sum()), len(one.lengths))
        for split, one in before.items()
    }
    if rule == "refuse" or (rule == "leave_out" and counts["valid"][0] == counts["valid"][1]):
        words = r"^train: [\d,]+ of [\d,]+ .* longer than batch.max_length="
        check_refused(words, kind.load, config, None, ("train", "valid"))
        return
    task = kind.load(config, None, ("train", "valid"))
    message = [line.split(" tokens (")[0] for line in task.longer]
    assert message == [
        f"{split}: {more:,} of {every:,} {data.things} longer than batch.max_length={length}"
        for split, (more, every) in counts.items()
        if not (rule == "score" and split == "train")
    ]
    more, every = counts["train"]
    if rule == "score" and more < every:
        note = task.batches(config.training.accumulate).note
        words = f"{more:,} {data.things} longer than batch.max_length={length} tokens are left out"
        assert note == f"{words}, none is cut"
    after = getattr(task.data, "examples", None) or task.data.ids
    sizes = {split: len(one) for split, one in after.items()}
    if rule == "leave_out":
        assert sizes == {split: every - more for split, (more, every) in counts.items()}
        assert task.data.fingerprints["valid"] != data.fingerprints["valid"]
    elif rule == "cut":
        assert sizes == {split: every for split, (_, every) in counts.items()}
    if rule in ("leave_out", "cut"):
        assert max(one.lengths.max() for one in after.values()) <= length
        assert all(task.size(split) == size for split, size in sizes.items())
    if rule == "windows":
        every = list(getattr(task, "_in_turn", task.split_batches)("valid"))
        batches = [one[1] if isinstance(one, tuple) else one for one in every]
        assert max(one["source"].shape[1] for one in batches) <= length
        read = sum((one["source"] != task.special.pad).sum() for one in batches)
        starts = sum((one["source"][:, 0] != task.special.pad).sum() for one in batches)
        assert read - kind.extra_tokens * starts == len(data.ids["valid"].ids)


def test_sentences_are_cut_to_whole_words_and_heads_beyond_them_are_roots() -> None:
    overrides = ["batch.max_length=9", "batch.buckets=9", "batch.longer=cut", *OF]
    config = configs.load("configs/tagging.py:syntax", overrides)
    task = TASKS.resolve("tagging").load(config, None, ("train", "valid"))
    before = TASKS.resolve("tagging").read(config, None, ("valid",)).rows["valid"]
    lost = 0
    for whole, cut in zip(before, task.data.rows["valid"], strict=True):
        number = min(len(whole.words), 7)  # words of one piece, and two ends
        heads = tuple(head if head < number else -1 for head in whole.heads[:number])
        assert cut == (whole.words[:number], whole.tags[:number], heads)
        lost += len(whole.words) - number
    assert lost and f": {lost} words are neither trained on nor scored" in task.longer[-1]
    assert task.counts("valid")["words"] == sum(len(one.words) for one in before) - lost
    words = r"max_length=2: the word .* has 1 pieces.*raise it"
    short = Buckets(longer="cut", buckets=(2,), max_length=2)
    check_refused(words, treat_long_examples, task.data, short)


def test_configs_without_the_setting_mean_what_they_meant() -> None:
    """A stored config leaves long texts out of training alone; nothing of its data is changed."""
    stored = configs.load("configs/tagging.py:transformer", OF).to_dict()
    del stored["batch"]["longer"]
    config = configs.prepare(configs.from_dict(stored), ["batch.max_length=12"])
    assert config.batch.longer == "score"
    task = TASKS.resolve("tagging").load(config, None, ("train", "valid"))
    assert task.data.examples["valid"].lengths.max() > 12
    assert [line.partition(" tokens (")[2] for line in task.longer] == [
        "up to 21) are scored whole"
    ]
    assert task.batches(1).note.endswith("are left out, none is cut")
    assert treat_long_examples(task.data, stored["batch"]) == (task.data, [])
