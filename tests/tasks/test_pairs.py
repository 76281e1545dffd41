"""Loss, scores and hypotheses of translation are those of plain loops over teacher-forced
probabilities. Text to text has ROUGE, the mean over its texts, beside these scores. Error rates of
phonemes and words are those counted by hand; a word may have several pronunciations.
"""

import functools
import math
from typing import Any

import jax
import numpy as np
import pytest

from attnlab.data.corpus import Corpus, encode
from attnlab.data.learned import Learned
from attnlab.data.vocabulary import BOS, EOS, PAD, Vocabulary
from attnlab.decoding.generate import Decoded
from attnlab.decoding.metrics import ROUGE, corpus_scores, rouge
from attnlab.tasks import TASKS
from attnlab.tasks.pairs import Pronunciation, TextToText, Translation
from attnlab.tasks.scoring import scored_texts
from attnlab.training.hyperparameters import SMOOTHING
from tests.changed import changed
from tests.tasks.tiny import APART, batch_of, check_items, load, loader, log_softmax, looked, noisy

of_models = pytest.mark.product("translations")


class Model:
    """A task that smooths its loss, parameters, and what is worth compiling once: the pass and a
    decoder for each setting.
    """

    def __init__(self, system: str) -> None:
        self.task = load(system, "training.label_smoothing=0.2", "decoding.method=greedy")
        self.params = noisy(self.task)
        self.logits = jax.jit(lambda *ids: self.task.system.apply({"params": self.params}, *ids))
        self.texts = [source for source, _ in self.task.data.rows["test"]]

    @functools.cache  # noqa: B019 - lives as long as the module's tests
    def decoding(self, **changes: Any) -> Translation:
        """The same task and data with other settings of `decoding`."""
        settings = {f"decoding__{name}": value for name, value in changes.items()}
        return Translation(changed(self.task.config, **settings), self.task.data)

    def translate(
        self, texts: list[str] | None = None, alignment: bool = False, **changes: Any
    ) -> list[list[Decoded]]:
        """Translations of `texts`, or of the test split."""
        texts = self.texts if texts is None else texts
        return self.decoding(**changes).translate(self.params, texts, alignment=alignment)

    def log_probs(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """log p(v | source, target before) of one sentence in float64, teacher-forced, [T,V]."""
        source, target_in = (
            np.pad(ids, (0, 16 - len(ids)))[None].astype(np.int32)
            for ids in (source, [BOS, *target[:-1]])
        )
        return log_softmax(self.logits(source, target_in))[0, : len(target)]


@pytest.fixture(scope="module", params=["rnnsearch", "transformer"])
def model(request: pytest.FixtureRequest) -> Model:
    return Model(request.param)


@pytest.fixture(scope="module")
def plain() -> Translation:
    """A task that nobody trains."""
    return load("rnnsearch")


def picked(log_probs: np.ndarray, target: np.ndarray) -> np.ndarray:
    return log_probs[np.arange(len(target)), target]


@of_models
def test_loss_smooths_in_training_only_and_counts_real_tokens(model: Model) -> None:
    """The summed loss of a padded batch is that of single sentences; a rate that is given replaces
    the config's.
    """
    batch = batch_of(model.task, rows=3)
    hard, soft = 0.0, 0.0
    for source, target in zip(batch["source"][:3], batch["target"][:3], strict=True):
        target = target[target != PAD]
        every = model.log_probs(source[source != PAD], target)
        hard, soft = hard - picked(every, target).sum(), soft - every.mean(axis=1).sum()

    @jax.jit
    def losses(*given: Any) -> Any:
        return model.task.loss(*given), model.task.loss(*given, numbers={SMOOTHING: 0.0})

    both = losses(model.params, batch, jax.random.key(1))
    for (total, sums), expected in zip(both, (0.8 * hard + 0.2 * soft, hard), strict=True):
        assert float(total) == pytest.approx(expected, rel=1e-5)
        assert int(sums["tokens"]) == (batch["target"] != PAD).sum()


def test_the_key_decides_the_dropout() -> None:
    task = load("rnn_encoder_decoder", "system.dropout=0.5")
    params, batch = noisy(task), batch_of(task)
    loss = jax.jit(lambda key: task.loss(params, batch, key)[0])
    one, again, other = (float(loss(jax.random.key(seed))) for seed in (0, 0, 1))
    assert one == again != other


@pytest.mark.quick
def test_weight_by_token_and_by_sentence(plain: Translation) -> None:
    batch = batch_of(plain, rows=5)
    assert float(plain.weight(batch)) == (batch["target"] != PAD).sum() > 5
    assert float(load("rnnsearch", "training.per=sentence").weight(batch)) == 5
    assert float(plain.weight({name: 0 * rows for name, rows in batch.items()})) == 0


@of_models
def test_evaluation_is_never_smoothed_and_weighted_by_tokens(model: Model) -> None:
    """11 sentences in batches of 8, of unequal lengths, are scored as by a loop over single
    sentences; one model alone and of several at once.
    """
    losses, right, examples = [], [], model.task.data.examples["valid"]
    for source, target in zip(*examples.sequences, strict=True):
        every = model.log_probs(source, target)
        losses.append(-picked(every, target))
        right.append(every.argmax(axis=1) == target)
    mean, accuracy = np.concatenate(losses).mean(), np.concatenate(right).mean()
    expected = {"loss": mean, "perplexity": math.exp(mean), "accuracy": accuracy}
    assert model.task.evaluate(model.params, "valid") == pytest.approx(expected, rel=1e-5)
    stacked = jax.tree.map(lambda leaf: leaf[None], model.params)
    (scores,) = model.task.evaluate_stacked(stacked, "valid")
    assert scores == pytest.approx(expected, rel=1e-5)
    assert abs(mean - np.mean([loss.mean() for loss in losses])) > 1e-2  # no mean over sentences
    assert 0 < accuracy < 1.0


BEAM = {"method": "beam", "beam": 4, "n_best": 3, "length_penalty": 0.7, "max_extra": 6}
METHODS: list[dict[str, Any]] = [
    {"method": "greedy"},
    {**BEAM, "coverage": 0.4},
    {"method": "sample", "n_best": 4, "seed": 0},
]


@of_models
@pytest.mark.parametrize("how", METHODS, ids=["greedy", "beam", "sample"])
def test_log_probability_is_that_of_teacher_forcing(model: Model, how: dict[str, Any]) -> None:
    """Step by step with caches and beams in flight, and in one pass over the tokens that were
    written, it is the same number, that of the source at the same place, of 11 in batches of 8 that are
    sorted by length inside. With the weights that a hypothesis comes with, the score is
    log P / lp + beta sum_i log min(sum_j a_ij, 1).
    """
    texts = [*model.texts, "", "deadbeef"]
    translated = model.translate(texts, **how, alignment=True)
    assert len({tuple(best[0].tokens.tolist()) for best in translated}) > 5
    assert model.translate([], **how) == []
    for text, hypotheses in zip(texts, translated, strict=True):
        source = np.append(model.task.vocabularies[0].encode_all([text])[0], EOS)
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert len(scores) == how.get("n_best", 1) and scores == sorted(scores, reverse=True)
        for best in hypotheses:
            every = model.log_probs(source, best.tokens)
            assert best.log_prob == pytest.approx(picked(every, best.tokens).sum(), abs=1e-4)
            assert best.alignment is not None
            assert best.alignment.shape == (len(best.tokens), len(source))
            np.testing.assert_allclose(best.alignment.sum(axis=1), 1.0, atol=1e-5)
            length = ((5 + len(best.tokens)) / 6) ** how.get("length_penalty", 0.0)
            looked_at = best.alignment.astype(np.float64).sum(axis=0)
            covered = how.get("coverage", 0.0) * np.log(np.clip(looked_at, 1e-6, 1.0)).sum()
            near = 1e-3 if covered else 1e-4
            assert best.score == pytest.approx(best.log_prob / length + covered, abs=near)
            assert len(best.tokens) <= len(source) + how.get("max_extra", 2)


@of_models
def test_the_log_probability_of_a_pair_counts_its_end(model: Model) -> None:
    """As `generate --score` prints it: the sum over all tokens of the target and EOS, whoever is
    beside it in the batch.
    """
    pairs = [*model.task.data.rows["test"], ("abc", "a"), ("abc", "edc")]
    ids = [model.task.vocabularies[0].encode_all(texts) for texts in zip(*pairs, strict=True)]
    ends = [(np.append(one, EOS), np.append(other, EOS)) for one, other in zip(*ids, strict=True)]
    expected = [picked(model.log_probs(source, target), target).sum() for source, target in ends]
    scored = scored_texts(model.task, model.params, pairs)
    assert [score.log_prob for score in scored] == pytest.approx(expected, abs=1e-4)
    prices = [picked(model.log_probs(source, target), target)[-1] for source, target in ends]
    assert max(map(abs, prices)) > 1e-2  # the end has a price


@of_models
@pytest.mark.full
def test_samples_are_reproducible_and_differ_by_seed(model: Model) -> None:
    def drawn(texts: list[str] | None = None, **how: Any) -> list[list[list[int]]]:
        return [[one.tokens.tolist() for one in best] for best in model.translate(texts, **how)]

    first = drawn(**METHODS[2])
    assert first == drawn(**METHODS[2]) != drawn(**METHODS[2] | {"seed": 1})
    assert first[:2] == drawn(model.texts[:2], **METHODS[2])  # the rest of the batch has no say
    assert any(len({tuple(tokens) for tokens in best}) > 1 for best in first)


@of_models
def test_maps_go_with_their_tokens_and_are_the_alignment_of_decoding(model: Model) -> None:
    (best,) = model.translate(["abcde"], method="greedy", alignment=True)[0]
    text = model.task.text(best)
    maps, tokens = looked(model.task, model.params, "abcde", text)
    written = {"target": [*text, "</s>"], "target_in": ["<s>", *text]}
    assert tokens == {"source": [*"abcde", "</s>"], **written}
    recurrent = model.task.config.system.name == "rnnsearch"
    places = ("encoder_0/self", "decoder_0/self", "decoder_0/cross")
    assert {*maps} == ({"attention"} if recurrent else {f"{place}_attention" for place in places})
    for one in maps.values():
        assert isinstance(one.weights, np.ndarray)
        expected = (1 if recurrent else 4, len(one.rows), len(one.columns))
        assert one.weights.shape == expected
        np.testing.assert_allclose(one.weights.sum(-1), 1.0, atol=1e-5)
    cross = maps["attention" if recurrent else "decoder_0/cross_attention"]
    assert (cross.rows, cross.columns) == (tokens["target"], tokens["source"])
    assert best.alignment is not None
    mean = cross.weights.mean(axis=0)[: len(best.alignment)]
    np.testing.assert_allclose(mean, best.alignment, atol=1e-5)


@of_models
def test_scores_of_a_split_are_made_of_its_sentences(model: Model) -> None:
    """Nine translations, in the order of the data; the loss of each alone is that of its row."""
    pairs = model.task.data.rows["test"]
    scores, hypotheses = model.task.score(model.params, "test")
    assert hypotheses == [model.task.text(best[0]) for best in model.translate()]
    hits = sum(mine == target for mine, (_, target) in zip(hypotheses, pairs, strict=True))
    assert scores["exact"] == hits / 9 and 0 <= scores["bleu"] <= 100
    assert "nrefs:1" in scores["bleu_signature"]
    measures = {"loss", "perplexity", "accuracy", "bleu", "chrf", "exact"}
    assert {*model.task.measures} == measures
    assert {name for name in scores if not name.endswith("_signature")} <= measures
    items = check_items(model.task, model.params, "test", measures)
    assert items.rows["loss"][:, 1].tolist() == [len(target) + 1 for _, target in pairs]
    scored = scored_texts(model.task, model.params, pairs)
    nats = np.negative([score.log_prob for score in scored])
    np.testing.assert_allclose(items.rows["loss"][:, 0], nats, rtol=1e-6)
    assert scored_texts(model.task, model.params, []) == []


def test_references_are_lower_cased_and_so_is_bleu(
    plain: Translation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run without case is scored without case, on references spelt as its own texts are: composed
    letters, no capitals.
    """
    # One of them with a combining accent.
    pairs = [("a b c d e", "\u00c9t\u00c9 B C D E"), ("b", "E\u0301 A B C D")]
    vocabulary = Vocabulary.train(
        [text for pair in pairs for text in pair], kind="char", min_frequency=1, lowercase=True
    )
    config = changed(plain.config, vocabulary__lowercase=True)
    both = (vocabulary, vocabulary)
    task = Translation(
        config,
        Corpus({"test": pairs}, {"test": encode(both, pairs)}, Learned.of_vocabulary(vocabulary)),
    )
    actual = [
        [Decoded(np.append(ids, EOS), 0.0, 0.0, None)]
        for ids in vocabulary.encode_all([target for _, target in pairs])
    ]
    asked: list[Any] = []

    def noted(hypotheses: Any, references: Any, **how: Any) -> Any:
        asked.append(references)
        return corpus_scores(hypotheses, references, **how)

    monkeypatch.setattr(Translation, "translate", lambda *rest, **how: actual)
    monkeypatch.setattr("attnlab.tasks.written.corpus_scores", noted)
    scores, hypotheses = task.score(None, "test")
    assert hypotheses == asked[0] == ["\u00e9t\u00e9 b c d e", "\u00e9 a b c d"]
    assert (scores["exact"], scores["bleu"], scores["chrf"]) == pytest.approx((1.0, 100.0, 100.0))
    assert "case:lc" in scores["bleu_signature"] and "case:lc" in scores["chrf_signature"]


def test_notes_tell_what_is_unknown(plain: Translation) -> None:
    notes = plain.notes(plain.batches(1))
    letters = sum(len(source) + 1 for source, _ in plain.data.rows["train"])
    each = f"{letters} tokens (0 unknown)"
    assert notes[0] == f"train: 64 pairs, source {each}, target {each}"
    assert [note.split(":")[0] for note in notes] == ["train", "valid", "test"]
    assert plain.longer_than(5, ["abcd", "abcde", "", "abcdea"]) == [1, 3]


def test_each_side_has_its_vocabulary() -> None:
    """Lower case to upper case, nothing shared: the same ids read otherwise on the two sides."""
    task = load("transformer", *APART, "system.share=output")
    params = noisy(task)
    _, tokens = looked(task, params, "abc", "CBA")
    labels = {"source": [*"abc", "</s>"], "target": [*"CBA", "</s>"], "target_in": ["<s>", *"CBA"]}
    assert tokens == labels
    written = [task.text(best[0]) for best in task.translate(params, ["abcde", "e"])]
    assert not {*"".join(written)} & {*"abcde"}


def test_rouge_is_the_mean_of_the_texts_and_stands_beside_the_scores_of_a_translation() -> None:
    plain = load("transformer", "decoding.method=greedy")
    task = TASKS.resolve("text_to_text")(plain.config, plain.data)
    assert isinstance(task, TextToText)
    params = noisy(plain)
    scores, answers = task.score(params, "test")
    theirs, same = plain.score(params, "test")
    assert answers == same and theirs.items() <= scores.items()
    items = check_items(task, params, "test", {*plain.measures, *ROUGE})
    for name in ROUGE:
        each = [rouge(*pair)[name] for pair in zip(answers, task.references("test"), strict=True)]
        assert scores[name] == pytest.approx(sum(each) / len(each))
        assert items.rows[name].tolist() == [[score, 1.0] for score in each]


PAIRS = [("ab", "A B"), ("cab", "K A B"), ("ab", "A B B"), ("baba", "B A B A")]
SMALL = [
    *("system.embedding=8", "system.encoder=8", "system.decoder=8", "system.maxout=6"),
    *("system.attention.score.hidden=8", "batch.buckets=8", "batch.max_length=8"),
    f"data={__name__}:Words",
]


class Words:
    """The same few pairs in every split."""

    def pairs(self, split: str) -> list[tuple[str, str]]:
        return PAIRS


g2p = functools.cache(loader("g2p.py:rnnsearch", SMALL, ("test",)))


def answering(answers: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lets the task answer so; the words that it was asked for."""
    asked: list[str] = []

    def translate(self: Any, params: Any, sources: list[str], **how: Any) -> list[list[str]]:
        asked.extend(sources)
        return [[answers[word]] for word in sources]

    monkeypatch.setattr(Pronunciation, "translate", translate)
    monkeypatch.setattr(Pronunciation, "text", lambda self, answer: answer)
    return asked


@pytest.mark.quick
def test_the_nearest_pronunciation_counts_each_word_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """3 + 3 + 4 phonemes: "ab" as its second pronunciation, one replaced and one missing in "cab",
    "baba" with one too many.
    """
    asked = answering({"ab": "A B B", "cab": "G A", "baba": "B A B A K"}, monkeypatch)
    scores, outputs = g2p().score(None, "test")
    assert asked == ["ab", "cab", "baba"] and outputs == ["A B B", "G A", "A B B", "B A B A K"]
    rates = {"phoneme_error_rate": pytest.approx(3 / 10), "word_error_rate": pytest.approx(2 / 3)}
    assert scores == rates
    assert set(scores) | {"loss", "perplexity", "accuracy"} == set(Pronunciation.measures)
    answering({"ab": "A B", "cab": "K A B", "baba": "B A B A"}, monkeypatch)
    assert g2p().score(None, "test")[0] == {"phoneme_error_rate": 0.0, "word_error_rate": 0.0}


def test_scores_are_made_of_their_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word with two pronunciations is one example."""
    answering({"ab": "A B B", "cab": "G A", "baba": "B A B A K"}, monkeypatch)
    one, names = g2p(), set(Pronunciation.measures)
    items = check_items(one, noisy(one), "test", names)
    assert items.rows["phoneme_error_rate"].tolist() == [[0, 3], [2, 3], [1, 4]]
    assert items.rows["word_error_rate"][:, 0].tolist() == [0, 1, 1]
    assert items.rows["loss"][:, 1].tolist() == [3 + 4, 4, 5]


@pytest.mark.quick
def test_letters_are_one_vocabulary_and_phonemes_another() -> None:
    letters, phonemes = g2p().vocabularies
    assert letters.settings["kind"] == "char" and letters.size == 4 + 3
    assert phonemes.settings["kind"] == "spaced" and phonemes.size == 4 + 3
    assert phonemes.decode(phonemes.encode_all(["K A B"])[0]) == "K A B"
    assert TASKS.resolve("pronunciation") is Pronunciation
