"""What is not held equal between variants, and scores of different test data."""

from pathlib import Path
from typing import Any

import pytest

from attnlab.data.vocabulary import Vocabulary
from attnlab.experiments.report.across import across
from attnlab.experiments.report.contents import Contents, gather
from attnlab.experiments.report.equality import differing
from tests.experiments.report.tabled import cells, main, part, warned
from tests.experiments.synthetic import budget, claim, edit, edit_candidates, met, sweep, write

SGD, ADAM = {"optimizer": {"name": "sgd"}}, {"optimizer": {"name": "adam", "b1": 0.9}}
TWO = {"a": (0.9, 0.8, 0.85), "b": (0.5, 0.41, 0.45)}
CLAIM = claim({"a": 1.0, "b": -1.0}, 0.1)
SAME, OTHER = {"a": "1" * 64, "b": "1" * 64}, {"a": "1" * 64, "b": "2" * 64}


def found(directory: Path, **changes: Any) -> Contents:
    return gather(sweep(directory, **changes))


@pytest.mark.quick
def test_more_steps_and_a_larger_batch_are_no_match(tmp_path: Path) -> None:
    """The parameters are equal, and one variant has twice the steps and twice the batch: at the
    head, in the row and beside the budget.
    """
    more = {"training.steps": 24, "batch.size": 128}
    base = {"additive": {"batch.size": 64}, "general": more, "location": {"batch.size": 64}}
    directory = sweep(tmp_path, settings=base, budget=budget("additive"))
    edit_candidates(directory, budget=met(12001, 12000, knob="system.decoder", matched=True))
    contents = gather(directory)
    (text,) = warned(contents, "held equal")
    assert text == (
        "Not held equal: batch.size 64 (additive, location), 128 (general); training.steps 12"
        " (additive, location), 24 (general)."
    )
    budgets = [cells(main(contents), row)["budget"] for row in range(3)]
    close = "matched within 0.01 %"
    assert budgets == [close, f"{close}, but not batch.size, training.steps", close]
    unequal = "by system.decoder. Not held equal: batch.size, training.steps."
    assert any(f"held to those of additive {unequal}" in note for note in main(contents).notes)


@pytest.mark.parametrize(
    ("settings", "kinds"),
    [
        ({"additive": {}, "general": {}, "location": {}}, {}),
        ({"location": {"training.log_every": 7, "parallel.devices": 2}}, {}),  # changes no number
        ({"location": {"vocabulary.kind": "char"}}, {"vocabulary.kind": "unequal"}),
        ({"location": {"decoding.beam": 2}}, {"decoding.beam": "unequal"}),
        ({"location": SGD, "general": ADAM}, {"optimizer": "unequal"}),
    ],
)
def test_what_counts(settings: dict[str, Any], kinds: dict[str, str], tmp_path: Path) -> None:
    records = found(tmp_path, settings=settings).records
    assert {one.name: one.kind for one in differing(records)} == kinds


def test_what_stands_alone_between_two_variants_is_what_is_compared(tmp_path: Path) -> None:
    """A cross of score and steps: every number of steps is seen with each score, so nothing is
    mixed up; it is said, without warning.
    """
    scores = dict.fromkeys(("dot", "dot long", "general", "general long"), (0.9, 0.8))
    settings = {name: {"system.attention.score": name.split()[0]} for name in scores}
    for name in ("dot long", "general long"):
        settings[name] |= {"training.steps": 24, "schedule.warmup": 8}  # together
    contents = found(tmp_path, scores=scores, settings=settings)
    expected = [("schedule.warmup", "compared"), ("training.steps", "compared")]
    assert [(one.name, one.kind) for one in differing(contents.records)] == expected
    assert warned(contents, "held equal") == []
    compared = part(contents, "What is compared")
    words = "Differ as compared: schedule.warmup - (dot, general), 8 (dot long, general long); "
    assert any(note.startswith(words) for note in compared.notes)


def test_tuned_settings_are_said_as_tuned(tmp_path: Path) -> None:
    directory = sweep(tmp_path, tuned={0.001: 1.0, 0.003: 0.0})
    choice = directory / "choice.json"
    other = choice.read_text().replace("general-peak-0.003", "general-peak-0.001")
    choice.write_text(other)
    contents = gather(directory)
    assert warned(contents, "held equal") == []
    (one,) = differing(contents.records)
    assert (one.name, one.kind) == ("schedule.peak", "tuned")
    words = "Differ as tuned: schedule.peak 0.003 (additive, location), 0.001 (general)."
    assert words in part(contents, "What is compared").notes


@pytest.mark.quick
def test_rows_of_different_test_data_have_no_difference(tmp_path: Path) -> None:
    """By digest: neither difference, test, winner nor verdict; the row and the head say why."""
    same = found(tmp_path / "same", scores=TWO, claim=CLAIM, test_data=SAME)
    assert same.comparison.rows[1].difference is not None and same.outcome.startswith("supported")
    assert same.warnings == ()
    other = found(tmp_path / "other", scores=TWO, claim=CLAIM, test_data=OTHER)
    words = "not every row was scored on the same test examples"
    assert any(words in note for note in main(other).notes)
    assert other.comparison.rows[1].difference is None
    assert not any(row.best for row in other.comparison.rows)
    words = "undecided at 3 seeds: a and b were not scored on the same test examples"
    assert other.outcome == words
    (text,) = warned(other, "test data")
    assert text.endswith("without difference to it: b (222222222222, not 111111111111).")
    assert cells(main(other), 1)["remark"] == "other test examples"


def test_where_one_row_has_other_test_data_none_is_marked_best(tmp_path: Path) -> None:
    """Not even among those that share theirs."""
    three = {**TWO, "c": (0.3, 0.31, 0.35)}
    for name, last in (("same", "1"), ("other", "2")):
        data = {**SAME, "c": last * 64}
        rows = found(tmp_path / name, scores=three, test_data=data).comparison.rows
        assert any(row.best for row in rows) == (name == "same")


def test_without_digests_the_config_says_which_test_data(tmp_path: Path) -> None:
    """A record of an earlier version has no digest; with digests, other training data is no other
    test data.
    """
    settings = {"b": {"data.seed": 1}}
    old = found(tmp_path / "old", scores=TWO, claim=CLAIM, settings=settings)
    assert old.comparison.rows[1].difference is None
    assert warned(old, "test data")[0].endswith("without difference to it: b (another data.seed).")
    same: dict[str, Any] = {"settings": settings, "test_data": SAME}
    new = found(tmp_path / "new", scores=TWO, claim=CLAIM, **same)
    assert new.comparison.rows[1].difference is not None and warned(new, "test data") == []


def test_seeds_of_one_row_on_different_test_data_are_told(tmp_path: Path) -> None:
    directory = sweep(tmp_path, TWO, claim=CLAIM, test_data=SAME)
    path = next(directory.glob("trials/b-*/seed2/look.json"))
    path.write_text(path.read_text().replace("1" * 64, "3" * 64))
    contents = gather(directory)
    assert contents.comparison.rows[1].difference is None and warned(contents, "test data")


def test_a_claim_about_the_data_is_judged_across_it(tmp_path: Path) -> None:
    """Copying and reversing with two scores each: a row has no difference to a baseline of the
    other task; the claim says what it means.
    """
    scores = {"dot copy": (0.9, 0.8), "dot reverse": (0.5, 0.41)}
    scores |= {"general copy": (0.9, 0.81), "general reverse": (0.7, 0.6)}
    parts = {name: name.split() for name in scores}
    settings = {n: {"system.attention.score": s, "data.order": o} for n, (s, o) in parts.items()}
    digests = {name: name.split()[1] * 12 for name in scores}
    across = claim({"dot copy": 1.0, "dot reverse": -1.0}, 0.1)
    both: dict[str, Any] = {"scores": scores, "test_data": digests}
    contents = found(tmp_path / "across", claim=across, settings=settings, **both)
    assert contents.outcome == "supported (2 seeds)"
    assert [row.difference is None for row in contents.comparison.rows] == [True, True, False, True]
    (text,) = warned(contents, "test data")
    assert text.endswith("dot reverse, general reverse (another data.order, as compared).")
    gain = {"general reverse": 1.0, "dot reverse": -1.0, "general copy": -1.0, "dot copy": 1.0}
    mixed = {
        name: {**own, "training.steps": 24} if "reverse" in name else own
        for name, own in settings.items()
    }
    mixed["general reverse"] |= {"data.more": 1}
    contents = found(tmp_path / "gain", claim=claim(gain), settings=mixed, **both)
    assert "same test examples" not in contents.outcome and contents.verdict is not None
    assert contents.verdict.seeds == 2


def vocabularies(directory: Path, **digests: str) -> Path:
    """The folder of a sweep whose variants have these vocabularies, and two measures that say on
    what they depend.
    """
    loss = {"better": "min", "depends": ["vocabulary"], "unit": "nats per token"}
    exact = {"better": "max", "depends": ["vocabulary.lowercase"]}
    said = {"loss": loss, "perplexity": loss, "exact": exact}
    for variant, digest in digests.items():
        for path in directory.glob(f"trials/{variant}-*/*"):
            vocabulary = {"source.json": f"{variant} only", "target.json": digest}
            edit(path / "manifest.json", vocabulary=vocabulary)
            if (path / "results.json").exists():
                edit(path / "results.json", measures=said)
    return directory


LOSSES = {"a": (0.9, 0.8, 0.7, 0.85), "b": (0.5, 0.43, 0.3, 0.4), "c": (0.4, 0.31, 0.21, 0.3)}
LOSS = {"metric": "loss", "mode": "min"}


@pytest.mark.quick
def test_losses_over_other_vocabularies_are_not_compared(tmp_path: Path) -> None:
    """No difference, no best, no verdict, though the data is what is compared; a line at the head
    that names a measure that will do; by that measure everything is compared.
    """
    claim = {"statement": "a < c.", "contrasts": [{"weights": {"c": 1, "a": -1}, "at_least": 0.0}]}
    plain = sweep(tmp_path / "same", LOSSES, measure=LOSS, claim=claim)
    same = gather(vocabularies(plain, a="v", b="v", c="v"))
    assert [row.name for row in same.comparison.rows if row.best] == ["a"]
    dot = {"system.attention.score": "dot"}
    compared = {name: {**dot, "data.order": name == "c"} for name in LOSSES}
    apart = sweep(tmp_path / "other", LOSSES, measure=LOSS, claim=claim, settings=compared)
    found = gather(vocabularies(apart, a="v", b="v", c="w"))
    assert [row.difference is not None for row in found.comparison.rows] == [False, True, False]
    assert not any(row.best for row in found.comparison.rows)
    assert found.verdict is not None and found.verdict.outcome == "undecided"
    assert "a and c are not comparable" in found.verdict.sentence.replace("c and a", "a and c")
    (line,) = (one.text for one in found.warnings if "Not comparable" in one.text)
    assert "with a by loss (nats per token): c" in line and "Compare by exact, which" in line
    exact = sweep(tmp_path / "exact", LOSSES)
    scored = gather(vocabularies(exact, a="v", b="v", c="w")).comparison
    assert all(row.difference is not None for row in scored.rows[1:])
    reached = {"metric": "steps_to(loss<=1.9)", "mode": "min"}
    steps = vocabularies(sweep(tmp_path / "steps", LOSSES, measure=reached), a="v", b="v", c="w")
    assert gather(steps).comparison.rows[2].difference is None
    (pair,) = (one for one in across(plain, apart).pairs if one.name == "c")
    assert pair.gap is None and pair.remark.startswith("not compared: another vocabulary")


@pytest.mark.parametrize(
    ("of_c", "compared"),
    [({"lowercase": True}, False), ({"lowercase": False}, True), ({"normalizer": "NFKC"}, False)],
)
def test_scores_of_other_characters_are_not_compared(
    of_c: dict[str, Any], compared: bool, tmp_path: Path
) -> None:
    """Lower-cased texts, or those that a tokenizer normalises, have other characters; where other
    vocabularies see the same characters the scores are compared, and else not recommended.
    """
    for metric, mode in (("exact", "max"), ("loss", "min")):
        directory = sweep(tmp_path / metric, LOSSES, measure={"metric": metric, "mode": mode})
        vocabularies(directory, a="v", b="v", c=str(of_c))
        for folder in directory.glob("trials/*/*"):
            kept = folder / "vocabulary" / "target.json"
            own = of_c if folder.match("c-*/*") else {"lowercase": False}
            if "normalizer" in own:
                write(kept, {"tokenizer": {"content": own}})
            else:
                Vocabulary.train(["A b", "b A"], kind="word", **own).save(kept)
    found, by_loss = gather(tmp_path / "exact"), warned(gather(tmp_path / "loss"), "measure")
    assert [row.difference is not None for row in found.comparison.rows[1:]] == [True, compared]
    why = "c (another vocabulary.lowercase or normaliser, on which exact depends)."
    assert why in "".join(warned(found, "measure")) or compared
    assert ("Compare by exact, which" in by_loss[0]) == compared


def test_records_that_do_not_say_on_what_a_measure_depends(tmp_path: Path) -> None:
    """As in earlier versions: a loss is of tokens, unless there are classes; and the settings of the
    vocabulary stand for one that is not on record.
    """
    settings = {"c": {"vocabulary.kind": "char"}}
    old = sweep(tmp_path / "old", LOSSES, measure=LOSS, settings=settings)
    assert gather(old).comparison.rows[2].difference is None
    for path in old.glob("trials/*/*"):
        write(path / "vocabulary" / "labels.json", {"labels": ["yes", "no"]})
    assert gather(old).comparison.rows[2].difference is not None
    for path in old.glob("trials/c-*/*"):
        write(path / "vocabulary" / "labels.json", {"labels": ["yes", "no", "maybe"]})
    assert "another classes" in " ".join(one.text for one in gather(old).warnings)


def test_settings_that_are_left_out_one_at_a_time_and_all_are_compared(tmp_path: Path) -> None:
    """As `sweep --without` does; a variant that changes something else too stands alone."""
    usual: dict[str, object] = {"batch.size": 4, "schedule.warmup": 4, "training.clip": 4}
    alone = {f"without {key}": {key: 8} for key in usual}
    settings = {"whole": {}, **alone, "without all": dict.fromkeys(usual, 8)}
    usual |= {"system.attention.score": "dot"}
    rows = {name: {**usual, **changed} for name, changed in settings.items()}
    scores = dict.fromkeys(rows, (0.5, 0.6, 0.55))
    contents = found(tmp_path / "all", scores=scores, settings=rows, baseline="whole")
    assert [each.kind for each in differing(contents.records)] == ["compared"] * 3
    rows["without all"]["training.steps"] = 24
    contents = found(tmp_path / "more", scores=scores, settings=rows, baseline="whole")
    assert {each.kind for each in differing(contents.records)} == {"unequal"}
