"""Recurrent systems that write a text for a text, by their papers."""

import math

import numpy as np

from tests.attention.alignment_oracles import ALIGNMENTS, Row
from tests.attention.oracles import part
from tests.attention.score_oracles import SCORES
from tests.systems.oracles import parts
from tests.systems.oracles.parts import Settings, State, Tree, Vector, affine, of_each_row


@of_each_row
def seq2seq(params: Tree, settings: Settings, source: Vector, target_in: Vector) -> list[Vector]:
    """Sutskever, Vinyals, Le 2014, section 2; `settings` has "order", "reversed" unless it says
    "plain".
    """
    _, states = _read_stack(params, settings, source)
    logits = []
    for word in parts.embeddings(params["embed_target"], target_in):
        states, top = _through(parts.stack(params["writer"]), states, word)
        logits.append(affine(params["out"], top))
    return logits


def _read_stack(
    params: Tree, settings: Settings, ids: np.ndarray
) -> tuple[list[Vector], list[State]]:
    """The outputs of the top layer, in the order of the source whatever the order of reading, and
    the last states of all layers; of two directions the forward half first.
    """
    layers, x = parts.stack(params["reader"]), parts.embeddings(params["embed_source"], ids)
    if settings.get("directions", 1) == 2:
        last = []
        for layer in layers:
            x, ends = parts.both_ways(layer, x)
            c, h = (np.concatenate(halves) for halves in zip(*ends, strict=True))
            last.append((c, h))
        return x, last
    way = -1 if settings.get("order", "reversed") == "reversed" else 1
    outputs, last = parts.stacked(layers, x[::way])
    return outputs[::way], last


def _through(layers: list[Tree], states: list[State], x: Vector) -> tuple[list[State], Vector]:
    """One step of layers, each of which reads what the one below puts out: their states, and the
    output of the top one.
    """
    following = []
    for layer, state in zip(layers, states, strict=True):
        following.append(parts.layer_step(layer, state, x))
        x = following[-1][1]
    return following, x


@of_each_row
def luong(params: Tree, settings: Settings, source: Vector, target_in: Vector) -> list[Vector]:
    """Luong, Pham, Manning 2015, section 3; `settings` has "order" and "feeding" as the system,
    "attention" a node of `single`.
    """
    annotations, states = _read_stack(params, settings, source)
    layers, a, logits = parts.stack(params["writer"]), np.zeros_like(annotations[0]), []
    for t, word in enumerate(parts.embeddings(params["embed_target"], target_in)):
        given = affine(layers[0]["of_input"], word)
        if settings.get("feeding", "input") == "input":
            given = given + a @ params["of_last"]["kernel"]
        lowest = parts.cell_step(layers[0]["cell"], states[0], given)
        above, h = _through(layers[1:], states[1:], lowest[1])
        states = [lowest, *above]
        context = _context(params.get("attention", {}), settings["attention"], t, h, annotations)
        a = np.tanh(np.concatenate([context, h]) @ params["combine"]["kernel"])
        logits.append(affine(params["out"], a))
    return logits


def _context(
    params: Tree, settings: Settings, t: int, h: Vector, annotations: list[Vector]
) -> Vector:
    """c_t = sum_s a_t(s) hbar_s, equations 7 to 10; t counts from 0."""
    (name, of_score), own = part(settings, "score", "general"), params.get("score", {})
    scores = [SCORES[name](own, of_score, h, one, s) for s, one in enumerate(annotations)]
    name, of_alignment = part(settings, "alignment", "softmax")
    everywhere, own = np.ones(len(scores), bool), params.get("alignment", {})
    row = Row(own, of_alignment, np.array(scores), everywhere, query=h, i=t)
    return parts.mean_of(ALIGNMENTS[name](row), annotations)


@of_each_row
def gnmt(params: Tree, settings: Settings, source: Vector, target_in: Vector) -> list[Vector]:
    """Wu et al. 2016, section 3; `settings` has the depths, "query" and "first" as the system; the
    score is additive.
    """
    asks_before = settings.get("query", "previous") == "previous"
    annotations, states = _read_deep(params, settings, source)
    above = range(settings["decoder_layers"] - 1)
    layers = [params["lowest"], *(params[f"above_{number}"] for number in above)]
    if settings.get("first") != "encoder":
        states = [parts.no_state(layer) for layer in layers]
    context, logits = np.zeros_like(annotations[0]), []
    for word in parts.embeddings(params["embed_target"], target_in):
        if asks_before:
            context = parts.additive(params["attention"], states[0][1], annotations)
        given = affine(layers[0]["of_input"], word) + context @ params["of_context"]["kernel"]
        following = [parts.cell_step(layers[0]["cell"], states[0], given)]
        x = following[0][1]
        if not asks_before:
            context = parts.additive(params["attention"], x, annotations)
        for number in range(1, len(layers)):
            state = parts.layer_step(layers[number], states[number], np.concatenate([x, context]))
            following.append(state)
            x = state[1] + x if number + 1 in _summed(settings) else state[1]
        states = following
        logits.append(affine(params["out"], x))
    return logits


def _summed(settings: Settings) -> range:
    """The layers, counted from 1, whose input is added to their output."""
    return range(3, 100) if settings.get("residual", True) else range(0)


def _read_deep(
    params: Tree, settings: Settings, ids: np.ndarray
) -> tuple[list[Vector], list[State]]:
    """The annotations, and the last state of every layer, of the lowest that of its backward
    half.
    """
    words = parts.embeddings(params["embed_source"], ids)
    if settings.get("directions", 2) == 1:
        x, at_first = parts.passed(params["both_ways"], words)
    else:
        x, (_, at_first) = parts.both_ways(params["both_ways"], words)
    last = [at_first]
    for number in range(2, settings["encoder_layers"] + 1):
        y, state = parts.passed(params["reader"][f"layer_{number - 2}"], x)
        sums = number in _summed(settings)
        x = [one + below if sums else one for one, below in zip(y, x, strict=True)]
        last.append(state)
    return x, last


@of_each_row
def rnn_encoder_decoder(
    params: Tree, settings: Settings, source: Vector, target_in: Vector
) -> list[Vector]:
    """Cho et al. 2014, appendix A.1: the reset gate of the decoder closes the way of the context
    too.
    """
    _, (_, end) = parts.passed(params["reader"], parts.embeddings(params["embed_source"], source))
    c = np.tanh(end @ params["summary"]["kernel"])
    h, logits = np.tanh(c @ params["first_state"]["kernel"]), []
    for word in parts.embeddings(params["embed_target"], target_in):
        of_word, of_context = affine(params["of_word"], word), c @ params["of_context"]["kernel"]
        _, h = parts.cell_step(params["cell"], (h, h), of_word, of_context)
        logits.append(affine(params["out"], _maxout(_units(params, h, word, c))))
    return logits


def _units(params: Tree, state: Vector, word: Vector, context: Vector) -> Vector:
    """What state, last word and context give to the layer before the output."""
    units = affine(params["out_state"], state) + word @ params["out_word"]["kernel"]
    return units + context @ params["out_context"]["kernel"]


def _maxout(units: Vector) -> Vector:
    """The larger of each two."""
    return np.array([max(units[2 * k], units[2 * k + 1]) for k in range(len(units) // 2)])


@of_each_row
def rnnsearch(params: Tree, settings: Settings, source: Vector, target_in: Vector) -> list[Vector]:
    """Bahdanau, Cho, Bengio 2015, appendix A; the output sees s_i (section 3) or s_{i-1}
    (appendix), as `settings["readout"]` says.

    "released", the authors' code: s_{i-1} has read y_{i-1} and c_{i-1} when attention and output
    see it.
    """
    words = parts.embeddings(params["embed_source"], source)
    if "of_input" in params["reader"]:  # one direction
        annotations, (_, end) = parts.passed(params["reader"], words)
    else:
        annotations, (_, (_, end)) = parts.both_ways(params["reader"], words)
    first = np.tanh(end @ params["first_state"]["kernel"])  # s_0 = tanh(W_s h_1 from the right)
    state = np.zeros_like(first), first  # of the GRU and the tanh RNN h alone counts
    late, context, logits = settings.get("readout") == "released", None, list[Vector]()
    for word in parts.embeddings(params["embed_target"], target_in):
        of_word = affine(params["of_word"], word)
        if late and context is not None:
            given = of_word + context @ params["of_context"]["kernel"]
            state = parts.cell_step(params["cell"], state, given)
        previous = state
        context = parts.additive(params["attention"], previous[1], annotations)
        if not late:
            given = of_word + context @ params["of_context"]["kernel"]
            state = parts.cell_step(params["cell"], previous, given)
        seen = (previous if settings.get("readout") == "previous" else state)[1]
        logits.append(affine(params["out"], _maxout(_units(params, seen, word, context))))
    return logits


@of_each_row
def cgru(params: Tree, settings: Settings, source: Vector, target_in: Vector) -> list[Vector]:
    """Sennrich et al. 2017, section 2; the parameters of z say which share of the state is new (the
    paper's, which is old, have the other sign).
    """
    annotations, _ = parts.both_ways(
        params["reader"], parts.embeddings(params["embed_source"], source)
    )
    s = np.tanh(affine(params["first_state"], sum(annotations) / len(annotations)))
    logits = []
    for word in parts.embeddings(params["embed_target"], target_in):
        _, between = parts.cell_step(params["before"], (s, s), affine(params["of_word"], word))
        c = parts.additive(params["attention"], between, annotations)
        _, s = parts.cell_step(params["after"], (between, between), affine(params["of_context"], c))
        logits.append(affine(params["out"], np.tanh(_units(params, s, word, c))))
    return logits


@of_each_row
def rctm(params: Tree, settings: Settings, source: Vector, target_in: Vector) -> list[Vector]:
    """Kalchbrenner, Blunsom 2013: h_t = sigmoid(R h_{t-1} + I y_t + S v), o_t = O h_t."""
    words = parts.embeddings(params["embed_source"], source)
    biased = _sentence(params["sentence"], settings, words) @ params["of_sentence"]["kernel"]
    state, logits = np.zeros_like(biased), []
    for word in parts.embeddings(params["embed_target"], target_in):
        state = parts.sigmoid(state @ params["past"] + affine(params["of_word"], word) + biased)
        logits.append(affine(params["out"], state))
    return logits


def _sentence(params: Tree, settings: Settings, words: list[Vector]) -> Vector:
    """The vector of a sentence, every channel on its own: windows of 2, 3, ..., r, the widest again
    while more than r columns are left, then one for all.
    """
    widest = max(2, math.ceil(math.sqrt(2 * settings["longest"])))
    result = np.zeros(len(words[0]))
    for channel in range(len(result)):
        row = [word[channel] for word in words]
        for size in range(2, widest + 1):
            row = _convolved(row, params[f"window_{size}"][:, channel]) if len(row) >= size else row
        while len(row) > widest:
            row = _convolved(row, params[f"window_{widest}"][:, channel])
        if len(row) > 1:
            row = _convolved(row, params[f"top_{len(row)}"][:, channel])
        result[channel] = row[0]
    return result


def _convolved(row: list[float], window: Vector) -> list[float]:
    return [
        parts.sigmoid(sum(window[j] * row[a + j] for j in range(len(window))))
        for a in range(len(row) - len(window) + 1)
    ]


@of_each_row
def pointer_generator(
    params: Tree, settings: Settings, source: Vector, target_in: Vector
) -> np.ndarray:
    """See, Liu, Manning 2017: log P(w) of the final distribution; see `copying_looks`."""
    return copying_looks(params, settings, source, target_in)[0]


def copying_looks(
    params: Tree, settings: Settings, source: Vector, target_in: Vector
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pointer-generator of section 2 over one text without padding, input feeding and the first
    state by the authors' code: log-probabilities [T,V], attention [T,S] and the coverage loss [T].
    """
    table = params.get("embed_source", params["embed_target"])
    annotations, ends = parts.both_ways(params["reader"], parts.embeddings(table, source))
    c, h = (
        np.maximum(0.0, affine(params[name], np.concatenate(halves)))
        for name, halves in zip(("first_cell", "first_state"), zip(*ends, strict=True), strict=True)
    )
    state, covers = (c, h), settings.get("coverage", "keys") == "keys"
    context, coverage, steps = np.zeros_like(annotations[0]), np.zeros(len(source)), []
    for token in parts.embeddings(params["embed_target"], target_in):
        x = affine(params["of_word"], token) + context @ params["of_context"]["kernel"]
        state = parts.layer_step(params, state, x)
        s = state[1]
        # where keys are [annotation ; coverage], the last row of their matrix is w_c
        keys = [np.append(h, seen) for h, seen in zip(annotations, coverage, strict=True)]
        keys = keys if covers else annotations
        a = parts.softmax(parts.additive_scores(params["attention"]["score"], s, keys))
        context = parts.mean_of(a, annotations)
        p_gen = parts.sigmoid(affine(params["gate"], np.concatenate([context, s, x])))[0]
        read_out = affine(params["read_out"], np.concatenate([s, context]))
        p = p_gen * parts.softmax(affine(params["out"], read_out))
        for weight, word in zip(a, source, strict=True):
            p[word] += (1 - p_gen) * weight
        steps.append((np.log(p), a, np.minimum(a, coverage).sum()))
        coverage = coverage + a
    log_probs, attention, again = map(np.array, zip(*steps, strict=True))
    return log_probs, attention, again
