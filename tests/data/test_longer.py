"""What is longer than `batch.max_length` is treated by one rule in all splits, in every task that has
such a rule and by every rule that it has, and each split says so.
"""

import typing
from typing import Any

import pytest

from attnlab import config as configs
from attnlab.config import schema_of
from attnlab.data.columns import Packed
from attnlab.data.longer import treat_long_examples
from attnlab.data.settings import Buckets
from attnlab.errors import UserError
from attnlab.tasks import TASKS

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
        with pytest.raises(
            UserError, match=r"^train: [\d,]+ of [\d,]+ .* longer than batch.max_length="
        ):
            kind.load(config, None, ("train", "valid"))
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


def test_windows_and_cuts_are_those_of_a_loop() -> None:
    lists = [[5, 6, 7, 8, 2], [2], [9, 2], [5, 6, 7, 2]]
    packed = Packed(lists, pad=-1)
    for width in (1, 2, 3, 9):
        windows = [one[i : i + width] for one in lists for i in range(0, len(one), width)]
        assert [one.tolist() for one in packed.windows(width)] == windows
        cut = [one if len(one) <= width else [*one[: width - 1], one[-1]] for one in lists]
        assert [one.tolist() for one in packed.cut(width)] == cut
    assert packed.windows(2).pad == packed.cut(2).pad == -1 and len(Packed([]).windows(3)) == 0


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
    with pytest.raises(UserError, match=r"max_length=2: the word .* has 1 pieces.*raise it"):
        treat_long_examples(task.data, Buckets(longer="cut", buckets=(2,), max_length=2))


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
