"""All numbers of a system together are those of the functions that they come from."""

import functools
import json
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlab.analysis import inside
from attnlab.analysis.ablation import head_importance, prune_heads
from attnlab.analysis.inside import Analysis, analyse, first_rows
from attnlab.errors import UserError
from attnlab.systems.protocol import AttentionMap
from tests.analysis.planted import copier, decoder, loaded
from tests.tasks.tiny import noisy
from tests.tasks.tiny_language import SHARED

CONLLU = "1\tab\t_\tX\t_\t_\t2\tdep\t_\t_\n2\tcd\t_\tX\t_\t_\t0\troot\t_\t_\n3\tb\t_\tX\t_\t_\t2\tobj\t_\t_\n\n"


@functools.cache
def analysed() -> Analysis:
    model = decoder()
    return analyse(model.task, model.params, "test", 4)


def test_each_head_has_its_numbers() -> None:
    """One record for a head, with importance, agreement, effects and induction beside its statistics."""
    result, model = analysed(), decoder()
    assert (result.examples, result.notes) == (4, [])
    names = [(x["map"], x["head"]) for x in result.heads]
    assert names == [(f"layer_{n}/attention", head) for n in (0, 1) for head in (0, 1)]
    batches = first_rows(model.task, "test", 4)
    assert sorted(np.concatenate([numbers for numbers, _ in batches])) == [0, 1, 2, 3]
    scores = head_importance(model, batches)
    for record in result.heads:
        expected = scores[f"{record['map']}/heads"][record["head"]]
        assert record["importance"] == pytest.approx(expected, rel=1e-5)
        assert record["kind"] == "exact" and 0 <= record["induction_score"] <= 1
        assert 0 < record["uniform_effect"] < 1 and -1 <= record["agreement"] <= 1
    assert result.heads[1]["importance"] == 0.0  # nobody reads it
    assert [x["loss"] for x in result.pruning] == pytest.approx(prune_heads(model, batches)[1])
    assert {x["kind"] for x in result.costs} == {"zero", "mean", "resample", "uniform"}
    assert all(x["low"] <= x["cost"] <= x["high"] for x in result.costs)
    assert result.distance[0]["distance"] == 0 and result.distance[0]["gradient"] > 0


def test_maps_of_many_are_those_of_each() -> None:
    """The planted head looks at the token before, in texts of all lengths."""
    model = copier()
    result = Analysis(0)
    inside._add_statistics(result, model.task, model.params, "test", 5)
    assert [x["previous_argmax"] for x in result.heads] == [1.0, 0.0]
    assert result.heads[0]["best_offset"] == -1 and result.heads[1]["best_offset"] == 0


def test_a_map_has_the_statistics_of_its_heads() -> None:
    """A head that looks at the token before, and one that looks at itself; tokens are counted."""
    tokens = list("abca.")
    weights = np.stack([np.eye(5, k=-1), np.eye(5)]).astype(np.float32)
    weights[0, 0, 0] = 1
    system = decoder().task.system
    maps = [{"layer_0": AttentionMap(weights, tokens, list(tokens))}] * 2
    records = inside.statistics_of(system, maps)
    assert [x["previous_argmax"] for x in records] == [1.0, 0.0]
    assert [x["distance"] for x in records] == [0.8, 0.0] and records[0]["queries"] == 10


def test_two_sides_are_two_even_if_their_tokens_are_equal() -> None:
    """A copy attends to another text; how rare a token is, is counted on its own side."""
    tokens, longer = list("aab"), list("xyzxyz")
    cross = AttentionMap(np.eye(3, dtype=np.float32)[None], tokens, list(tokens))
    other = AttentionMap(np.eye(6, dtype=np.float32)[None], longer, list(longer))
    looks = {"cross": ("target", "source"), "self": ("target_in", "target_in")}
    system = types.SimpleNamespace(between=looks.get)
    both = inside.statistics_of(system, [{"cross": cross, "self": other}])
    assert np.isnan(both[0]["distance"]) and both[1]["distance"] == 0
    assert both[0]["rare_argmax"] == pytest.approx(1 / 3) and both[1]["map"] == "self"


def test_words_are_read_in_their_pieces(tmp_path: Path) -> None:
    """A treebank and a file of mentions; what a text is read as stands at its characters."""
    model = decoder()
    result = Analysis(0)
    read = inside._maps_of_texts(model.task, model.params, ["ab cd", "b"])
    assert [n for n, _, _ in read] == [0, 1]
    for _, places, maps in read:
        assert places[0].tolist() == [0, 0] and places[1].tolist() == [0, 1]
        assert {x.shape for x in maps.values()} == {(2, len(places), len(places))}
    (tmp_path / "t.conllu").write_text(CONLLU * 40)
    mentions = {"text": "ab ab ab", "clusters": [[[0, 2], [3, 5], [6, 8]]]}
    (tmp_path / "m.jsonl").write_text(f"{json.dumps(mentions)}\n" * 40)
    with pytest.raises(UserError, match="No such file|absent|not"):
        analyse(model.task, model.params, "test", 4, conllu=tmp_path / "absent.conllu")
    from attnlab.analysis.pointing import read_documents
    from attnlab.data.tagged import Conllu

    sentences = Conllu(str(tmp_path), test="t.conllu", tags="deprel").tagged("test")
    inside._add_syntax(result, model.task, model.params, sentences)
    inside._add_coreference(result, model.task, model.params, read_documents(tmp_path / "m.jsonl"))
    asked: dict[Any, int] = {(x["relation"], x["direction"]): x["count"] for x in result.syntax}
    assert asked["all", "head"] == 40 and asked["obj", "head"] == 20
    assert [x["count"] for x in result.coreference] == [40] and result.notes == []


def test_what_does_not_apply_is_said() -> None:
    """A recurrent system has no layer to switch off and no maps, but gradients by distance."""
    task = loaded("lstm", *(x for x in SHARED if x.startswith("system")))
    result = analyse(task, noisy(task, 0.7), "test", 2)
    assert result.heads == result.costs == []
    names = [line.partition(":")[0] for line in result.notes]
    assert names[:2] == ["statistics of heads", "costs of layers and heads"]
    with pytest.raises(UserError, match="no example"):
        first_rows(task, "test", 0)
