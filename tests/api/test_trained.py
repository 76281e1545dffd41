"""A trained run gives as values in Python what the commands print, and the maps of a text as a
notebook shows them.
"""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import attnlab
from attnlab.api.maps import MEANINGS, atlas_example
from attnlab.data.generated_pairs import Dates
from attnlab.systems.protocol import AttentionMap
from attnlab.tasks import scoring
from attnlab.tasks.maps import Chosen, ImageExample
from tests.commands.tiny import Runs, run_command

TEXTS = [source for source, _ in Dates(examples=160, valid=10, test=4).pairs("test")]


@pytest.fixture(scope="module")
def run(runs: Runs) -> attnlab.Run:
    return attnlab.load(runs("rnnsearch")[0])


def test_it_says_what_it_is_in_one_line(run: attnlab.Run, searched: Path) -> None:
    """Config, task, parameters and step of the best checkpoint; parameters are not printed."""
    results = json.loads((searched / "results.json").read_text())
    assert run.config.system.name == "rnnsearch" and run.task.config is run.config
    assert run.workdir == searched
    assert (run.step, run.parameters) == (results["step"], results["parameters"])
    counts = f"step={run.step}, parameters={run.parameters}"
    assert repr(run) == f"Run({str(searched)!r}, system='rnnsearch', data='dates', {counts})"


def test_generate_gives_what_the_command_writes(run: attnlab.Run, searched: Path) -> None:
    """Blank texts stay blank; `respond` has scores beside."""
    expected = (searched / "translations.txt").read_text().splitlines()
    assert run.generate([TEXTS[0], " ", *TEXTS[1:]]) == [expected[0], "", *expected[1:]]
    answers = run.respond([TEXTS[0], ""])
    assert [one.text for one in answers[0]] == expected[:1]
    assert answers[1] == []
    assert answers[0][0].score < 0
    assert run.generate([]) == [] and run.longer(["x" * 40, "", "x", "y" * 32]) == [0, 3]


def test_overrides_of_its_use_give_several_hypotheses(searched: Path) -> None:
    """And in the precision that it was trained in."""
    jax.config.update("jax_default_matmul_precision", "bfloat16")  # as another run left it
    settings = {"method": "beam", "beam": 20, "n_best": 3}
    run = attnlab.load(searched, {f"decoding.{name}": value for name, value in settings.items()})
    assert jax.config.jax_default_matmul_precision == "float32"
    flags = [f"--config.decoding.{name}={value}" for name, value in settings.items()]
    ended = run_command(["generate", f"--workdir={searched}", *flags], "4.5.1999\n")
    (answers,) = run.respond(["4.5.1999"])
    assert "".join(f"1\t{best.score:.4f}\t{best.text}\n" for best in answers) == ended.out != ""


def test_scores_are_log_probabilities(run: attnlab.Run, searched: Path) -> None:
    """As `generate --score` prints them; one alone as among others."""
    pairs = [("4.5.1999", "1999-05-04"), (TEXTS[0], "x")]
    typed = [f"{source}\t{target}\n" for source, target in pairs]
    ended = run_command(["generate", f"--workdir={searched}", "--score"], "".join(typed))
    scores = run.scores(pairs)
    lines = (f"{score:.6f}\t{line}" for score, line in zip(scores, typed, strict=True))
    assert "".join(lines) == ended.out
    assert run.score(*pairs[0]) == pytest.approx(scores[0], rel=1e-6)
    assert run.scores([]) == [] and max(scores) < 0


def test_maps_have_a_name_and_tokens_on_both_sides(run: attnlab.Run, tmp_path: Path) -> None:
    """The arrays that `inspect` keeps; without a target the system writes its own; a notebook shows
    a map as a picture.
    """
    flags = ["--source=3 of may 1967", "--target=1967-05-03", f"--output={tmp_path}"]
    assert run_command(["inspect", f"--workdir={run.workdir}", *flags]).code == 0
    kept = np.load(tmp_path / "0.npz")
    (name, one), *others = run.maps("3 of may 1967", "1967-05-03").items()
    assert (name, others) == ("attention", [])
    assert np.array_equal(one.weights, kept["attention"])
    assert isinstance(one.weights, np.ndarray)
    assert one.keys == kept["source_tokens"].tolist()
    assert one.queries == kept["target_tokens"].tolist()
    assert one._repr_png_() == (tmp_path / "0-attention.png").read_bytes()
    own = run.maps("3 of may 1967")["attention"]
    assert "".join(own.queries[:-1]) == run.generate(["3 of may 1967"])[0].replace(" ", "\u2423")


@pytest.mark.parametrize("split", [pytest.param("valid", marks=pytest.mark.full), "test"])
def test_evaluate_gives_what_the_command_prints(split: str, run: attnlab.Run) -> None:
    ended = run_command(["evaluate", f"--workdir={run.workdir}", f"--split={split}", "--json"])
    found, printed = run.evaluate(split), json.loads(ended.out)
    assert {**found, "decoding_seconds": 0} == {**printed, "decoding_seconds": 0}
    assert found["split"] == split


@pytest.mark.full
def test_runs_together(run: attnlab.Run, runs: Runs) -> None:
    """The ensemble of the commands: better than the worse member at least, for the logarithm is
    concave, and the same whoever is named first.
    """
    other = attnlab.load(runs("transformer")[0])
    both = attnlab.load(run.workdir, ensemble=[other.workdir])
    assert set(both.params) == {"members_0", "members_1"} and str(other.workdir) in repr(both)
    assert both.parameters == run.parameters + other.parameters
    flags = [f"--workdir={run.workdir}", f"--ensemble={other.workdir}"]
    found = json.loads(run_command(["evaluate", *flags, "--json", "--split=valid"]).out)["loss"]
    losses = [member.evaluate("valid")["loss"] for member in (run, other)]
    assert found == both.evaluate("valid")["loss"] < sum(losses) / 2 and found not in losses
    written = run_command(["generate", *flags], "\n".join([*TEXTS, ""])).out
    turned = attnlab.load(other.workdir, ensemble=[run.workdir])
    assert "\n".join([*both.generate(TEXTS), ""]) == written
    assert turned.generate(TEXTS) == both.generate(TEXTS)


def loaded(run: attnlab.Run, *overrides: Any, **how: Any) -> Any:
    return attnlab.load(run.workdir, *overrides, **how)


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda run: run.generate("3 of may"), "not one text: write generate(['3 of may'])"),
        (lambda run: run.evaluate("tset"), "split 'tset'; did you mean 'test'?"),
        (lambda run: loaded(run, splits="tset"), "split 'tset'; did you mean 'test'?"),
        (lambda run: run.score("a", " "), "pair 1: expected a source and a target, both not empty"),
        (lambda run: run.score([("a", "b")], "c"), "target= goes with one source; give a list of"),
        (lambda run: run.maps(" "), "source=' ': expected a text that is not empty"),
        (lambda run: loaded(run, {"training.steps": 8}), "training.steps cannot change after"),
        (lambda run: loaded(run, {"decoding.bean": 8}), "no such key; did you mean 'decoding.beam"),
        (lambda run: loaded(run, {"decoding.beam": 1.5}), "decoding.beam='1.5': expected int"),
        (lambda run: loaded(run, "decoding.beam=8"), "overrides: expected {key: value}, got 'dec"),
        (lambda run: attnlab.load(run.workdir.parent / "no"), "no holds no run; train one there"),
        (lambda run: loaded(run, ensemble=[run.workdir]), "is named twice; a run counts once"),
        (lambda run: loaded(run, ensemble="no"), "--ensemble: no holds no run; name folders of"),
    ],
)
def test_mistakes_have_the_words_of_the_command_line(
    use: Callable[[attnlab.Run], Any], words: str, run: attnlab.Run
) -> None:
    with pytest.raises(attnlab.UserError) as raised:
        use(run)
    assert words in str(raised.value)


def test_what_cannot_be_given(run: attnlab.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """No log P of a target where a task has none; as the commands say it."""
    monkeypatch.setattr(scoring, "WritingTask", type(None))
    message = "the task 'translation' gives texts no probability to score; language_modelling and"
    with pytest.raises(attnlab.UserError, match=message):
        run.score("a", "b")


@pytest.mark.parametrize("count", [1, 3])
def test_a_task_that_answers_another_number_of_texts_is_found(run: attnlab.Run, count: int) -> None:
    """No answer goes to the text of another."""
    task: Any = SimpleNamespace(respond=lambda params, texts: [[]] * count)
    with pytest.raises(ValueError, match="zip"):
        dataclasses.replace(run, task=task).respond(["a", "", "b"])


def test_a_notebook_shows_an_atlas(run: attnlab.Run, tmp_path: Path) -> None:
    """All maps in a frame; saved, with the arrays beside it."""
    text = ("4.5.1999", "1999-05-04")
    maps = run.maps(*text)
    with pytest.raises(attnlab.UserError, match="has no map of kind"):
        run.maps(*text, chosen=Chosen(kinds=("effective",)))
    shown = maps._repr_html_()
    assert shown.startswith('<iframe srcdoc="&lt;!doctype html&gt;') and "attention" in shown
    maps.save(tmp_path / "atlas.html")
    assert "4.5.1999" in (tmp_path / "atlas.html").read_text()
    saved = np.load(tmp_path / "maps.npz")["0/attention"]
    np.testing.assert_array_equal(saved, maps["attention"].weights)


def test_an_image_is_under_the_maps_of_its_places() -> None:
    image = np.zeros((4, 6, 3), np.uint8)
    system = SimpleNamespace(between=lambda name: ("hops", "image"), map_sides=("hops", ""))
    task = SimpleNamespace(system=system, grid=None)
    map_ = AttentionMap(np.full((1, 1, 6), 1 / 6), ["hop 1"], [str(n) for n in range(6)])
    example = atlas_example(task, ImageExample("x.png", image, "cat"), {"glance": map_}, "run")
    (part,) = example.maps
    assert (example.title, example.model, part.grid) == ("x.png  ->  cat", "run", (2, 3))
    assert part.statistics.keys() == MEANINGS.keys()
    np.testing.assert_allclose(part.statistics["entropy"], [np.log(6)])
