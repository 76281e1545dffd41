"""What is known of a score: as a task declares it, with the counts of a split, and as it is read
back from a record.
"""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from attnlab.errors import UserError
from attnlab.records import measures
from attnlab.records.json_kinds import Damaged, fit
from attnlab.records.measures import CLASSES, TEXT, VOCABULARY, Measure, counted, declared, share
from attnlab.tasks import TASKS

TASK: Any = SimpleNamespace(
    measures={
        "loss": "min",
        "bleu": Measure("max", 0.0, 100.0),
        "exact": share("sentences"),
        "accuracy": share("tokens"),
    },
    examples="sentences",
    size=lambda split: {"valid": 5, "test": 7}[split],
    counts=lambda split: {"tokens": 31},
)


@pytest.mark.quick
def test_shares_are_counted_and_records_say_so() -> None:
    """A word alone says which way is better; a task that counts nothing knows its examples, by their
    name and as examples.
    """
    assert declared(TASK)["loss"] == Measure("min") and declared(SimpleNamespace()) == {}
    assert declared(TASK)["exact"] == Measure("max", 0.0, 1.0, "sentences")
    counts = {name: measure.count for name, measure in counted(TASK, "test").items()}
    assert counts == {"loss": None, "bleu": None, "exact": 7, "accuracy": 31}
    named = counted(TASK, "valid", ["step", "exact", "loss"])
    assert named == {"exact": Measure("max", 0.0, 1.0, "sentences", 5), "loss": Measure("min")}
    record = json.loads(json.dumps({"measures": measures.as_record(named), "exact": 0.2}))
    exact = {"better": "max", "low": 0.0, "high": 1.0, "of": "sentences", "count": 5}
    assert record["measures"] == {"exact": exact, "loss": {"better": "min"}}
    assert fit(record, measures.Scores) == {"exact": 0.2, "measures": named}
    right = {"right": share("examples")}
    alone = SimpleNamespace(measures=right, examples="words", size=lambda split: 3)
    assert counted(alone, "test")["right"].count == 3


WRONG = [
    ("maximum", "of 'x', 'maximum' is better; write 'min' or 'max'"),
    (3, "'x' is 3; 'min', 'max' or an attnlab.records.measures.Measure is needed"),
    (Measure("max", 1.0, 0.0), "'x' lies between 1.0 and 0.0; the lower bound comes first"),
    (
        share("token"),
        "'x' is a share of 'token', which the task does not count; did you mean 'tokens'",
    ),
]


@pytest.mark.parametrize(("declaration", "words"), WRONG)
def test_what_is_declared_wrongly_is_one_line(declaration: Any, words: str) -> None:
    task = SimpleNamespace(**{**vars(TASK), "measures": {"x": declaration}})
    with pytest.raises(UserError, match=f"^measures: .*{words}"):
        counted(task, "test")
    with pytest.raises(Damaged, match=r"measures\.x\.better is \"up\""):
        fit({"measures": {"x": {"better": "up"}}}, measures.Scores)


def test_a_measure_says_on_what_it_depends_and_in_what_unit() -> None:
    """Records keep both; of a measure that does not say, its name and the classes decide."""
    task = SimpleNamespace(
        **{**vars(TASK), "measures": {"loss": Measure("min", depends=(VOCABULARY,), unit="nats")}},
        units={"loss": "nats per token", "confusion": "label"},
    )
    assert measures.units(task) == task.units
    assert measures.units(SimpleNamespace(measures=task.measures)) == {"loss": "nats"}
    record = {measures.RECORDED: measures.as_record(counted(task, "test"))}
    (loss,) = fit(json.loads(json.dumps(record)), measures.Scores)["measures"].values()
    assert (loss.depends, loss.unit) == ((VOCABULARY,), "nats per token")
    expected = {"loss": (VOCABULARY,), "accuracy": (VOCABULARY,), "bleu": (TEXT,), "iou": ()}
    for name, parts in expected.items():
        assert measures.depends_on(name, None, classes=False) == parts
        assert measures.depends_on(name, Measure("max"), classes=True) == (CLASSES,)
        assert measures.depends_on(name, Measure("max", depends=()), classes=True) == ()
    with pytest.raises(UserError, match="depends on 'vocabulry'; did you mean 'vocabulary'"):
        declared(SimpleNamespace(measures={"loss": Measure("min", depends=("vocabulry",))}))


@pytest.mark.parametrize("name", TASKS.names())
def test_every_measure_of_every_task_depends_on_what_its_numbers_show(name: str) -> None:
    """Of tasks without classes: scores of tokens on the vocabulary, those of characters, and of
    references as the vocabulary sees them, on whether these are lower-cased.
    """
    named = declared(TASKS.resolve(name))
    of_tokens = {"loss", "perplexity", "accuracy", *["recall"] * ("bits_per_character" in named)}
    of_texts = {"bits_per_character", "bleu", "chrf", "phoneme_error_rate", "word_error_rate"}
    of_texts |= {"exact", "named"} if "bleu" in named else set()
    expected = {**dict.fromkeys(of_tokens, (VOCABULARY,)), **dict.fromkeys(of_texts, (TEXT,))}
    for measure, one in named.items():
        assert measures.depends_on(measure, one, classes=False) == expected.get(measure, ())
