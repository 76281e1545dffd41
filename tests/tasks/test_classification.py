"""Classification has the loss and the scores of plain loops over single examples; it answers lines,
shows its maps, and names what it cannot read.
"""

import dataclasses
import math
import runpy
import shlex
from typing import Any

import jax
import numpy as np
import pytest

from attnlab import config as configs
from attnlab.data import labelled
from attnlab.data.vocabulary import EOS, PAD
from attnlab.errors import UserError
from attnlab.tasks.classification import Classification, confusion, macro_f1
from attnlab.training.hyperparameters import SMOOTHING
from attnlab.training.updates import first_params
from tests.refusals import check_refused
from tests.systems.oracles.readers import penalties
from tests.tasks.tiny import changed, check_items, log_softmax, looked, noisy
from tests.tasks.tiny_labelled import batch_of, load

of_models = pytest.mark.product("classes")


def told_apart(task: Classification) -> Any:
    """Parameters that answer every class, and some of them rightly."""
    params = noisy(task, 1.0)
    last = params["verdict"]["last"]
    last["bias"] -= np.asarray(jax.jit(task.apply)(params, batch_of(task, 16))).mean(axis=0)
    turned = {name: np.roll(leaf, 1, axis=-1) for name, leaf in last.items()}
    return {**params, "verdict": {**params["verdict"], "last": turned}}


class Model:
    """A task, parameters, and its logits of one example in float64."""

    def __init__(self, texts: int) -> None:
        self.task = load("self_attentive", texts)
        self.params = told_apart(self.task)
        self._call = jax.jit(lambda *ids: self.task.system.apply({"params": self.params}, *ids))

    def log_probs(self, *texts: str) -> np.ndarray:
        """log p of the classes, [C]."""
        encoded = self.task.data.vocabulary.encode_all(texts)
        ids = [np.pad([*one, EOS], (0, 7 - len(one)))[None] for one in encoded]
        return log_softmax(self._call(*ids))[0]


@pytest.fixture(scope="module", params=[1, 2], ids=["texts", "pairs"])
def model(request: pytest.FixtureRequest) -> Model:
    return Model(request.param)


@of_models
def test_loss_is_summed_over_real_rows_and_smooths_in_training_only(model: Model) -> None:
    task, batch = changed(model.task, auxiliary__hops=None), batch_of(model.task, 3)
    names, actual = task.data.learned.classes, dict.fromkeys(("hard", "soft"), 0.0)
    real = np.flatnonzero(batch["label"])
    assert 0 < len(real) <= 3
    for row in real:
        texts = [
            task.data.vocabulary.decode(batch[side][row])
            for side in ("source", "target")[: task.data.learned.sentences]
        ]
        every = model.log_probs(*texts)
        actual["hard"] -= every[batch["label"][row] - 1]
        actual["soft"] -= every.mean()
    smooth = changed(task, training__label_smoothing=0.2)

    @jax.jit
    def losses(*given: Any) -> Any:  # the rate that is given replaces the config's
        return smooth.loss(*given), smooth.loss(*given, numbers={SMOOTHING: 0.0})

    both = losses(model.params, batch, jax.random.key(1))
    expected = (0.8 * actual["hard"] + 0.2 * actual["soft"], actual["hard"])
    for (total, sums), wanted in zip(both, expected, strict=True):
        assert float(total) == pytest.approx(wanted, rel=1e-5)
        assert int(sums["rows"]) == float(task.weight(batch)) == len(real)
        assert int(sums["tokens"]) == sum(
            (batch[side] != PAD).sum() for side in ("source", "target") if side in batch
        )
    assert len(names) == (4 if task.data.learned.sentences == 1 else 2)


@of_models
def test_the_penalty_is_added_with_its_weight(model: Model) -> None:
    """|| A A^T - I ||^2 of every real text by plain loops; nothing of rows of padding."""
    batch = batch_of(model.task, 3)
    total, sums = jax.jit(model.task.loss)(model.params, batch, jax.random.key(1))
    assert model.task.config.auxiliary.hops == 0.01
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), model.params)
    real = batch["label"] > 0
    expected = sum(
        penalties(wide, {}, batch[side][real]).sum()
        for side in ("source", "target")
        if side in batch
    )
    assert float(sums["hops"]) == pytest.approx(expected, rel=1e-5) and expected > 0
    assert float(total) == pytest.approx(float(sums["cross_entropy"]) + 0.01 * expected, rel=1e-5)


@of_models
@pytest.mark.parametrize("unknown", [False, True])
def test_evaluation_is_that_of_single_examples(model: Model, unknown: bool) -> None:
    """11 examples of several lengths, by a loop; macro F1 by counting; and example by example. A label
    that training does not have is wrong, left out of the loss, and together such are one class of F1 0.
    """
    data, names = model.task.data, model.task.data.learned.classes
    new = {0: "new", 4: "newer"} if unknown else {}
    rows = [(texts, new.get(at, label)) for at, (texts, label) in enumerate(data.rows["valid"])]
    examples = {"valid": labelled.encode(data.learned, rows, "valid")}
    data = dataclasses.replace(data, rows={"valid": rows}, examples=examples)
    task = Classification(model.task.config, data)
    losses, answers, labels = [], [], [label for _, label in rows]
    for texts, label in rows:
        every = model.log_probs(*texts)
        answers.append(names[int(every.argmax())])
        losses += [-every[names.index(label)]] if label in names else []
    f1 = [0.0] if unknown else []
    for name in {*labels, *answers} & {*names}:
        hits = sum(one == other == name for one, other in zip(labels, answers, strict=True))
        f1.append(2 * hits / (labels.count(name) + answers.count(name)))
    expected = {
        "loss": np.mean(losses),
        "accuracy": np.mean([a == b for a, b in zip(labels, answers, strict=True)]),
        "macro_f1": np.mean(f1),
    }
    assert task.evaluate(model.params, "valid") == pytest.approx(expected, rel=1e-5)
    assert expected["accuracy"] > 0 and len(losses) == 11 - len(new)
    stacked = jax.tree.map(lambda leaf: np.stack([leaf, 0 * leaf]), model.params)
    first, second = task.evaluate_stacked(stacked, "valid")
    assert first == pytest.approx(expected, rel=1e-5)
    assert second["loss"] == pytest.approx(math.log(len(names)), rel=1e-5)
    assert list(task.score(model.params, "valid")[0]["confusion"]) == [*names, *new.values()]
    items = check_items(task, model.params, "valid", {"loss", "accuracy", "macro_f1"})
    assert len(items) == 11 and items.rows["loss"][:, 1].sum() == len(losses)
    hits = [float(one == other) for one, other in zip(labels, answers, strict=True)]
    assert items.scores("accuracy", np.eye(11)) == hits


@of_models
def test_answers_confusion_and_measures(model: Model) -> None:
    """Rows of the confusion are labels; answers come in the order of the lines."""
    task, data = model.task, model.task.data
    names, rows = data.learned.classes, data.rows["test"]
    scores, lines = task.score(model.params, "test")
    pairs = [tuple(line.split("\t")) for line in lines]
    labels, answers = map(list, zip(*pairs, strict=True))
    assert labels == [label for _, label in rows] and task.size("test") == len(lines) == 9
    counts = {label: {each: pairs.count((label, each)) for each in names} for label in names}
    assert scores["confusion"] == counts
    assert any(counts[one][other] != counts[other][one] for one in names for other in names)
    assert set(task.measures) == set(task.evaluate(model.params, "test"))
    typed = ["\t".join(texts) for texts, _ in rows]
    order = np.random.default_rng(0).permutation(9)
    responses = task.respond(model.params, [typed[i] for i in order])
    assert [best.text for (best,) in responses] == [answers[i] for i in order]
    assert len(set(answers)) > 1
    for i, (best,) in zip(order, responses, strict=True):
        assert best.score == pytest.approx(model.log_probs(*rows[i][0]).max(), abs=1e-5)
    assert task.respond(model.params, []) == []


@of_models
def test_maps_go_with_their_tokens(model: Model) -> None:
    texts = ("abcd", "b")[: model.task.data.learned.sentences]
    source, target = (*texts, None)[:2]
    maps, tokens = looked(model.task, model.params, str(source), target)
    assert tokens["source"] == [*"abcd", "</s>"]
    assert set(maps) == ({"attention"} if target is None else {"attention", "attention_1"})
    for one in maps.values():
        assert one.weights.shape == (1, 2, len(one.columns)) and one.rows == ["hop 1", "hop 2"]
        np.testing.assert_allclose(one.weights.sum(-1), 1.0, atol=1e-5)
    assert model.task.map_examples("test", 2) == [
        (*each, None)[:2] for each, _ in model.task.data.rows["test"][:2]
    ]


@of_models
def test_lines_that_it_cannot_read_are_named(model: Model) -> None:
    pairs = model.task.data.learned.sentences == 2
    line, words = ("a\tb", r"'a\\tb': expected one text")
    if pairs:
        line, words = ("ab", "'ab': expected two texts with a tab")
    check_refused(words, model.task.respond, model.params, [line])
    with pytest.raises(UserError, match="expected"):
        model.task.examples_from_text(model.params, [("ab", None if pairs else "b")])
    examples = [("ab", "b" if pairs else None)]
    assert model.task.examples_from_text(model.params, examples) == examples
    if pairs:
        assert model.task.examples_from_text(model.params, [("ab\tb", None)]) == examples
    lines = ["ab\tb", "abcd\tb", "a\tabc"] if pairs else ["ab", "abcd", "a"]
    assert model.task.longer_than(4, lines) == [1] and model.task.longer_than(4, []) == []


@pytest.mark.quick
def test_macro_f1() -> None:
    """By hand: F1 of 2/3, 4/5 and 0; a class that is neither there nor answered is no class."""
    counts = np.array([[1, 0, 0, 0], [0, 2, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]])
    assert macro_f1(counts) == pytest.approx((2 / 3 + 4 / 5 + 0) / 3)
    assert macro_f1(np.zeros((2, 2))) == 0.0


def test_hops_without_a_penalty_on_purpose_and_one_hop_alone() -> None:
    for overrides in (["auxiliary.hops=None"], ["auxiliary.hops=0", "system.attention.hops=1"]):
        Classification.check(configs.load("configs/classification.py:self_attentive", overrides))


def test_pairs_for_a_system_that_reads_one_text(monkeypatch: pytest.MonkeyPatch) -> None:
    from attnlab.systems.recurrent.pooling import BiLSTMPooling

    monkeypatch.setattr(BiLSTMPooling, "texts", (1,))
    words = (
        r"system=bilstm_pooling reads 1 text\(s\) a row, config.data=entailment has"
        r" pairs.*choose from: .*self_attentive"
    )
    check_refused(words, Classification.check, configs.load("configs/inference.py:bilstm_pooling"))
    Classification.check(configs.load("configs/classification.py:bilstm_pooling"))


@pytest.mark.full
def test_choices_that_are_sampled_learn_from_the_label() -> None:
    """Hard attention: one choice for each text, rewarded by the log-likelihood of the label; the
    baseline follows it.
    """
    task = load("attention_pooling", 2, "system.attention.alignment=hard")
    params, batch = first_params(task.init, jax.random.key(0)), batch_of(task)
    total, sums = jax.jit(task.loss)(params, batch, jax.random.key(1), carried=task.carried())
    assert task.carried()["baseline"].shape == (1,) and np.isfinite(float(total))  # type: ignore[index]
    rows_of = int((batch["label"] > 0).sum())
    assert int(sums["tracked"]["rows"][0]) == rows_of and float(
        sums["tracked"]["rewards"][0]
    ) == pytest.approx(-float(sums["cross_entropy"]), rel=1e-5)
    lengths = [np.maximum((batch[side] != PAD).sum(axis=1), 1) for side in ("source", "target")]
    # an untrained additive score is 0 everywhere
    uniform = sum(np.log(one)[batch["label"] > 0].sum() for one in lengths)
    assert float(sums["choice_entropy"]) == pytest.approx(uniform, rel=1e-5)


def test_the_command_for_data_without_test_labels_is_sound() -> None:
    """What the top of the config file says: three splits that have labels, no two the same."""
    text = runpy.run_path("configs/classification.py")["__doc__"]
    flags = shlex.split(text[text.index("--config.data=tfds") :].split("\n\n")[0])
    config = configs.load("configs/classification.py", [x.removeprefix("--config.") for x in flags])
    wanted = ("train[:95%]", "train[95%:]", "validation")
    assert (config.data.train, config.data.valid, config.data.test) == wanted
    expected = ("glue/sst2", "label", "")
    assert (config.data.dataset, config.data.label, config.data.target) == expected


def test_the_table_has_labels_that_nobody_can_answer() -> None:
    table = confusion([("a", "a"), ("a", "b"), ("z", "b"), ("a", "b")], ["a", "b"])
    assert table == {"a": {"a": 1, "b": 2}, "b": {"a": 0, "b": 0}, "z": {"a": 0, "b": 1}}


@pytest.mark.quick
def test_counting_answers_takes_no_look_at_every_pair_for_every_cell() -> None:
    class Name(str):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Name.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    names = [Name(number) for number in range(20)]
    table = confusion(((names[n % 20], names[n % 7]) for n in range(200)), names)
    assert sum(map(sum, (row.values() for row in table.values()))) == 200
    assert Name.compared < 20 * 200
