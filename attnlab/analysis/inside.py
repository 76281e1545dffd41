"""All numbers about the inside of a trained system at once: what its heads look at, what each layer
and head is worth, and whether its weights explain its answers.

Axis letters: H heads, Tq queries, Tk keys, P pieces, W words.
"""

import dataclasses
import itertools
import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attnlab.analysis import ablation, attribution, heads, pointing
from attnlab.analysis.alignment import word_weights
from attnlab.analysis.heads import HeadStatistics, Record, summary
from attnlab.analysis.passes import Batches, Passes
from attnlab.data.passages import located
from attnlab.data.tagged import Conllu, Sentence
from attnlab.data.vocabulary import Vocabulary
from attnlab.errors import UserError
from attnlab.progress import patience
from attnlab.systems.protocol import AttentionMap, LanguageModel
from attnlab.tasks.maps import CHEAP_MAPS, MapProgram, map_program, maps_of_examples, sides_of

TEXT = ("source", "joined")  # sides that hold the text that a system reads first
REPEATED, LENGTH = 8, 24  # sequences of random tokens for induction scores, and half their length
ASKED = 64  # examples whose gradients are compared with weights, and taken by distance


@dataclasses.dataclass
class Analysis:
    """What `analyse` measures, as records: column to text or number, NaN where nothing can be said.

    Attributes:
      examples: how many were read.
      heads: a record for each head, see `attnlab.analysis.heads`, with its "importance",
        "agreement" of weights with gradients (Kendall's tau), "uniform_effect" and
        "permuted_effect" (how far answers move when the weights of its layer are changed), and for
        language models its "induction_score".
      costs: a record for each ablation, the columns of `attnlab.analysis.ablation.Cost`, with the ends
        of the interval as "low" and "high".
      pruning: "heads_off", the "place" and "head" that went last, and the loss without them.
      distance: "embedding", "distance" in tokens, and the norm of the "gradient".
      syntax, coreference: see `attnlab.analysis.pointing.Pointing.best`.
      notes: what does not apply to this run, a line each.
    """

    examples: int
    heads: list[Record] = dataclasses.field(default_factory=list)
    costs: list[Record] = dataclasses.field(default_factory=list)
    pruning: list[Record] = dataclasses.field(default_factory=list)
    distance: list[Record] = dataclasses.field(default_factory=list)
    syntax: list[Record] = dataclasses.field(default_factory=list)
    coreference: list[Record] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)

    def head(self, name: str, head: int) -> Record:
        """Returns the record of head number `head` of the map `name`; if the analysis has none, an
        empty record is added to `heads` and returned.
        """
        for record in self.heads:
            if (record["map"], record["head"]) == (name, head):
                return record
        self.heads.append({"map": name, "kind": "", "head": head})
        return self.heads[-1]


def analyse(
    task: Any,
    params: Any,
    split: str = "valid",
    examples: int = 100,
    conllu: str | os.PathLike[str] | None = None,
    coreference: str | os.PathLike[str] | None = None,
) -> Analysis:
    """Runs all analyses that apply to a trained system on the first `examples` of a split (some on
    at most `ASKED`) and on texts of the files `conllu` and `coreference`, and returns an
    `Analysis`; an analysis that raises `UserError` becomes a note in it.

    Args:
      task: with the data of the split.
      params: of its system.
      split: of the data.
      examples: how many, the first of the split and of each file.
      conllu: a treebank, for syntactic scores.
      coreference: a file of texts with mentions, see `attnlab.analysis.pointing`.

    Raises:
      UserError: no example, or one of the files cannot be read.
    """
    treebank = Path(conllu) if conllu else None
    sentences = treebank and Conllu(str(treebank.parent), test=treebank.name, tags="deprel").tagged(
        "test"
    )
    documents = pointing.read_documents(Path(coreference)) if coreference else None
    batches = first_rows(task, split, examples)
    model, counted = Passes(task, params), sum((numbers >= 0).sum() for numbers, _ in batches)
    result = Analysis(int(counted))
    some = first_rows(task, split, min(examples, ASKED))
    steps = {
        "statistics of heads": lambda: _add_statistics(result, task, params, split, examples),
        "costs of layers and heads": lambda: _add_costs(result, model, batches),
        "importance and pruning": lambda: _add_pruning(result, model, batches),
        "weights and gradients": lambda: _add_effects_and_agreement(result, model, some),
        "gradient by distance": lambda: _add_gradient_by_distance(result, model, some),
    }
    if sentences:
        steps["syntax"] = lambda: _add_syntax(result, task, params, sentences[:examples])
    if documents:
        steps["coreference"] = lambda: _add_coreference(result, task, params, documents[:examples])
    if isinstance(task.system, LanguageModel):
        steps["induction"] = lambda: _add_induction_scores(result, task, params)
    for name, step in steps.items():
        try:
            with patience(f"analysis: {name}"):
                step()
        except UserError as error:
            result.notes.append(f"{name}: {error}")
    columns = dict.fromkeys(itertools.chain(*result.heads))
    result.heads = [{name: x.get(name, math.nan) for name in columns} for x in result.heads]
    return result


def first_rows(task: Any, split: str, count: int) -> list[tuple[np.ndarray, Any]]:
    """Returns the first `count` examples of a split as a list of batches, pairs of the numbers [B]
    of the examples (-1 for padding) and the batch, of examples of one shape; raises `UserError` if
    there is none.
    """
    groups: dict[Any, list[Any]] = {}
    for numbers, batch in task.split_batches(split):
        chosen = (numbers >= 0) & (numbers < count)
        if numbers.max() >= count and not chosen.any() and isinstance(task.system, LanguageModel):
            break  # their rows come in order
        shapes = tuple((name, x.shape[1:]) for name, x in batch.items())
        rows = {name: np.asarray(x)[chosen] for name, x in batch.items()}
        groups.setdefault(shapes, []).append((numbers[chosen], rows))
    batches = []
    for parts in groups.values():
        numbers = np.concatenate([part for part, _ in parts])
        rows = {name: np.concatenate([row[name] for _, row in parts]) for name in parts[0][1]}
        count = -(-len(numbers) // task.at_once)
        size = -(-len(numbers) // count) if count else 1
        for begin in range(0, len(numbers), size):  # as few shapes as widths
            at = np.arange(begin, begin + size)
            real = at < len(numbers)
            numbered = np.where(real, numbers[at % len(numbers)], -1)
            batches.append((numbered, {name: x[at % len(x)] for name, x in rows.items()}))
    if not batches:
        raise UserError(f"the {split} split has no example")
    return batches


def statistics_of(system: Any, examples: Iterable[Mapping[str, AttentionMap]]) -> list[Record]:
    """Returns a record of statistics for each head (see `HeadStatistics.records`) over the labelled
    attention maps of all examples; `system` says between which texts each map lies. How rare a
    token is, is counted among the keys of its side in these examples.

    Args:
      system: names the sides of each map; a map of a side to itself is of self-attention.
      examples: maps by name, of each example.
    """
    every, counts = list(examples), defaultdict[str, Counter[str]](Counter)
    names = list(dict.fromkeys(name for maps in every for name in maps))
    for maps in every:
        for side, map_ in {sides_of(system, name)[1]: map_ for name, map_ in maps.items()}.items():
            counts[side].update(map_.columns)
    by_side = {side: HeadStatistics(frequencies=count) for side, count in counts.items()}
    for maps in every:
        for name, map_ in maps.items():
            rows, columns = sides_of(system, name)
            itself = rows == columns and list(map_.rows) == list(map_.columns)
            queries = None if itself else map_.rows
            by_side[columns].add(name, map_.weights, map_.columns, queries, kind=map_.kind)
    records = [record for statistics in by_side.values() for record in statistics.records()]
    return sorted(records, key=lambda record: names.index(record["map"]))


def head_scores(
    task: Any, params: Any, split: str, columns: Iterable[str], maps_for: MapProgram
) -> dict[str, float]:
    """Returns of each of `columns`, statistics of heads, the mean over all heads and the largest, as
    `<column>_mean` and `<column>_max`, over the first `ASKED` examples of a split; NaN where no head
    has a number. These are the metrics of training that have no colon (`attnlab.tasks.metrics`).

    Args:
      task: with the data of the split.
      params: of its system.
      split: of the data.
      columns: of `attnlab.analysis.heads`, such as "previous_argmax".
      maps_for: the program that computes the maps of an example, see `map_program`.
    """
    maps = maps_of_examples(task, params, task.map_examples(split, ASKED), maps_for)
    records = statistics_of(task.system, maps)
    parts = (summary(records, column) for column in columns)
    return {name: value for part in parts for name, value in part.items()}


def _add_statistics(result: Analysis, task: Any, params: Any, split: str, count: int) -> None:
    """Sets `result.heads` to the statistics of heads over the maps of the first `count` examples of
    a split; raises `UserError` if the system has no attention.
    """
    maps_for = map_program(task.system, CHEAP_MAPS)
    maps = maps_of_examples(task, params, task.map_examples(split, count), maps_for)
    result.heads = statistics_of(task.system, maps)
    if not result.heads:
        raise UserError(f"{type(task.system).__name__} has no attention; 'inspect' draws others")


def _add_costs(result: Analysis, model: Passes, batches: Batches) -> None:
    """Appends to `result.costs` a record for each ablation of a head or a mixing layer, with its
    cost in loss and the interval; raises `UserError` if the system has no mixing layer.
    """
    if not model.places(next(iter(batches))[1], ("heads", "layer", "weights")):
        raise UserError(f"{type(model.task.system).__name__} has no mixing layer")
    for cost in ablation.ablation_table(model, batches):
        low, high = cost.interval
        record = {**cost._asdict(), "low": low, "high": high}
        del record["interval"]
        result.costs.append(record)


def _add_pruning(result: Analysis, model: Passes, batches: Batches) -> None:
    """Adds "importance" to the records of heads in `result`, and to `result.pruning` a record of
    the loss with all heads, then after each head that is switched off, the least important first.
    """
    for place, scores in ablation.head_importance(model, batches).items():
        name = place.rpartition("/")[0]
        maps = sum(record["map"] == name for record in result.heads)  # several a head: micro steps
        for row in range(max(maps, len(scores))):
            head = row * len(scores) // max(maps, len(scores))
            result.head(name, row)["importance"] = float(scores[head])
    order, losses = ablation.prune_heads(model, batches)
    for off, loss in enumerate(losses):
        part: Any = order[off - 1] if off else ("", "")
        record = {"heads_off": off, "place": part[0], "head": part[1], "loss": loss}
        result.pruning.append(record)


def _add_effects_and_agreement(result: Analysis, model: Passes, batches: Sequence[Any]) -> None:
    """Adds to the records of heads in `result` how far answers move when a layer's weights are made
    uniform or permuted ("uniform_effect", "permuted_effect"), and the rank correlation of weights
    with gradients ("agreement").
    """
    places = model.places(batches[0][1], ("weights",))
    for (place, kind), moved in attribution.weight_effects(model, batches).items():
        name = place.rpartition("/")[0]
        for head in range(next(x.heads for x in places if x.name == place)):
            result.head(name, head)[f"{kind}_effect"] = float(moved.mean())
    embeddings = [place.name for place in model.places(batches[0][1], ("embedding",))]
    for end in {0, -1} if embeddings else ():
        taus: dict[str, list[Any]] = {}
        for _, batch in batches:
            agreement = attribution.weight_agreement(model, batch, embeddings[end])
            for place, tau in agreement.items():
                taus.setdefault(place.rpartition("/")[0], []).append(tau)
        for name, parts in taus.items():
            if (model.task.system.between(name)[1] in TEXT) == (end == 0):
                for head, values in enumerate(np.concatenate(parts).T):
                    ranked = values[~np.isnan(values)]
                    result.head(name, head)["agreement"] = (
                        float(ranked.mean()) if len(ranked) else np.nan
                    )


def _add_gradient_by_distance(result: Analysis, model: Passes, batches: Batches) -> None:
    """Appends to `result.distance` a record for each embedding and distance in tokens, with the norm
    of the gradient.
    """
    for name, norms in attribution.gradient_by_distance(model, batches).items():
        for distance, norm in enumerate(norms):
            row = {"embedding": name, "distance": distance, "gradient": float(norm)}
            result.distance.append(row)


def _vocabulary(task: Any) -> Vocabulary:
    """Returns the vocabulary of the text that a system reads; UserError if it reads none."""
    vocabularies = getattr(task, "vocabularies", None) or [getattr(task.data, "vocabulary", None)]
    if vocabularies[0] is None:
        raise UserError(f"task={task.config.task} reads no text")
    return vocabularies[0]  # type: ignore[no-any-return]


def maps_between_words(
    task: Any, params: Any, sentences: Sequence[Sentence]
) -> list[tuple[Sentence, pointing.Maps]]:
    """Returns a list of pairs, each sentence of a treebank that the system reads as written and its
    attention maps [H,W,W] between words by name; raises `UserError` if the system has no map from
    its text to itself.
    """
    read: list[tuple[Sentence, pointing.Maps]] = []
    texts = [" ".join(sentence.words) for sentence in sentences]
    for n, places, maps in _maps_of_texts(task, params, texts):
        spans = pointing.word_spans(sentences[n].words).tolist()
        words = pointing.membership(places, spans)
        named = {name: word_weights(x, words, words) for name, x in maps.items()}
        read.append((sentences[n], named))
    return read


def _maps_of_texts(
    task: Any, params: Any, texts: Sequence[str]
) -> list[tuple[int, np.ndarray, dict[str, np.ndarray]]]:
    """Returns a list of triples, for each text that the system reads as written (not cut, say): its
    number in `texts`, the character spans [P,2] of its tokens, and by name its maps [H,P,P] to
    itself; raises `UserError` if the system has no such map.
    """
    vocabulary = _vocabulary(task)
    second = texts if hasattr(task, "written") else [None] * len(texts)  # no need to write one
    examples = task.examples_from_text(params, list(zip(texts, second, strict=True)))
    every = maps_of_examples(task, params, examples, map_program(task.system, CHEAP_MAPS))
    read = []
    for n, ((ids, places), maps) in enumerate(zip(located(vocabulary, texts), every, strict=True)):
        between = {name: task.system.between(name) for name in maps}
        of_text = {k: x for k, x in maps.items() if between[k] in [(side, side) for side in TEXT]}
        if not of_text:
            raise UserError(f"{type(task.system).__name__} has no map from its text to itself")
        labels, pieces = [*next(iter(of_text.values())).columns], [*vocabulary.tokens(ids)]
        for begin in range(len(labels) - len(pieces) + 1):
            if labels[begin : begin + len(pieces)] == pieces:
                around = (begin, len(labels) - begin - len(pieces)), (0, 0)
                arrays = {name: map_.weights for name, map_ in of_text.items()}
                read.append((n, np.pad(places, around), arrays))
                break
    return read


def _note_unread(result: Analysis, count: int) -> None:
    """Appends a note to `result` that `count` texts of a file were left out; nothing for 0."""
    if count:
        result.notes.append(f"{count} texts of a file are not read as written")


def _add_syntax(result: Analysis, task: Any, params: Any, sentences: Sequence[Sentence]) -> None:
    """Sets `result.syntax` to how well heads point at syntactic heads and dependents in the
    `sentences` of a treebank, see `pointing.syntax_scores`, and leaves it as it is if no sentence
    is read as written; adds a note if some are not.
    """
    read = maps_between_words(task, params, sentences)
    _note_unread(result, len(sentences) - len(read))
    if read:
        chosen, maps = zip(*read, strict=True)
        result.syntax = pointing.syntax_scores(chosen, maps).best()


def _add_coreference(result: Analysis, task: Any, params: Any, documents: Sequence[Any]) -> None:
    """Sets `result.coreference` to how often heads point from a mention to an antecedent in
    `documents`, see `pointing.coreference_scores`, and leaves it as it is if no document is read as
    written; adds a note if some are not.
    """
    read = _maps_of_texts(task, params, [document.text for document in documents])
    _note_unread(result, len(documents) - len(read))
    if read:
        chosen = [documents[n] for n, _, _ in read]
        places, maps = [place for _, place, _ in read], [named for _, _, named in read]
        scores = pointing.coreference_scores(chosen, places, maps)
        result.coreference = scores.best()


def _add_induction_scores(result: Analysis, task: Any, params: Any) -> None:
    """Adds "induction_score" to the records of heads in `result`, the mean over random sequences of
    tokens that are repeated once.
    """
    vocabulary, limit = _vocabulary(task), task.config.longest_text or 2 * LENGTH + 1
    half = min(LENGTH, len(heads.ordinary_ids(vocabulary)), (limit - 1) // 2)
    sequences = heads.repeated_sequences(vocabulary, half, REPEATED, seed=0)
    maps_for = map_program(task.system, CHEAP_MAPS)
    every = [maps_for(params, [ids[None]]) for ids in sequences]
    for name, map_ in every[0].items():
        if map_.weights.shape[-1] == map_.weights.shape[-2] == sequences.shape[1]:
            scores = np.mean([heads.induction_score(x[name].weights) for x in every], axis=0)
            for head, score in enumerate(scores):
                result.head(name, head)["induction_score"] = float(score)
