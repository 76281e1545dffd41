"""Whole forward passes in float64 NumPy with plain loops, written from the papers: one sentence, one position, one head at a time.

Each takes the system's parameters (float64), its settings, source ids [B,S] and decoder input [B,T] with padding 0, and returns
the logits [B,T,V]. Padding is not masked here but never read: a sentence is cut to its real length first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Tree = Any
Vector = np.ndarray


def sigmoid(x: Vector) -> Vector:
    """1 / (1 + e^-x)."""
    return 1.0 / (1.0 + np.exp(-x))


def softmax(scores: Vector) -> Vector:
    """e^{x_j} / sum_k e^{x_k}."""
    raised = np.exp(scores - scores.max())
    return raised / raised.sum()


def rnnsearch(params: Tree, settings: dict[str, Any], source: np.ndarray, target_in: np.ndarray) -> np.ndarray:
    """Bahdanau, Cho, Bengio 2015, appendix A; the output sees s_i (section 3) or s_{i-1} (appendix), as `settings["readout"]` says.

    "released", the authors' code: s_{i-1} has read y_{i-1} and c_{i-1} when attention and output see it.
    """
    logits = np.zeros((*target_in.shape, params["out"]["kernel"].shape[1]))
    for b in range(len(source)):
        annotations, backward_at_first = _read_both_ways(params, source[b][source[b] != 0])
        state = np.tanh(backward_at_first @ params["first_state"]["kernel"])  # s_0 = tanh(W_s h_1 from the right)
        late, context = settings.get("readout") == "released", None
        for i, token in enumerate(target_in[b]):
            word, previous = params["embed_target"]["embedding"][token], state
            of_word = word @ params["of_word"]["kernel"] + params["of_word"]["bias"]
            if late and context is not None:
                previous = state = _gru(params["cell"], previous, of_word + context @ params["of_context"]["kernel"])
            context = _additive(params["search"], previous, annotations)
            if not late:
                state = _gru(params["cell"], previous, of_word + context @ params["of_context"]["kernel"])
            seen = previous if settings.get("readout") == "previous" else state
            units = seen @ params["out_state"]["kernel"] + params["out_state"]["bias"]
            units = units + word @ params["out_word"]["kernel"] + context @ params["out_context"]["kernel"]
            hidden = np.array([max(units[2 * k], units[2 * k + 1]) for k in range(len(units) // 2)])
            logits[b, i] = hidden @ params["out"]["kernel"] + params["out"]["bias"]
    return logits


def _read_both_ways(params: Tree, words: np.ndarray) -> tuple[list[Vector], Vector]:
    """Annotations of the real words, [forward ; backward] each, and the backward state at the first word."""
    embedded = [params["embed_source"]["embedding"][word] for word in words]
    states: dict[str, list[Vector]] = {}
    for direction, order in (("forward", embedded), ("backward", embedded[::-1])):
        layer = params["reader"][direction]
        state, found = np.zeros(len(layer["cell"]["candidate"])), []
        for x in order:
            state = _gru(layer["cell"], state, x @ layer["of_input"]["kernel"] + layer["of_input"]["bias"])
            found.append(state)
        states[direction] = found
    states["backward"].reverse()
    return [np.concatenate(pair) for pair in zip(states["forward"], states["backward"], strict=True)], states["backward"][0]


def _gru(cell: Tree, state: Vector, inputs: Vector) -> Vector:
    """r, z = sigma(.), n = tanh(W x + U (r * s) + C c), s' = (1 - z) s + z n; `inputs` = all that does not depend on s, for r, z, n."""
    width = len(state)
    of_r, of_z, of_n = inputs[:width], inputs[width : 2 * width], inputs[2 * width :]
    r = sigmoid(of_r + state @ cell["gates"][:, :width])
    z = sigmoid(of_z + state @ cell["gates"][:, width:])
    n = np.tanh(of_n + (r * state) @ cell["candidate"])
    return (1.0 - z) * state + z * n


def _additive(params: Tree, state: Vector, annotations: list[Vector]) -> Vector:
    """e_j = v . tanh(W s + U h_j), c = sum_j softmax(e)_j h_j."""
    params = params["fit"]
    query = state @ params["w_query"]["kernel"]
    weights = softmax(np.array([params["v"] @ np.tanh(query + one @ params["w_key"]["kernel"]) for one in annotations]))
    context = np.zeros_like(annotations[0])
    for weight, one in zip(weights, annotations, strict=True):
        context += weight * one
    return context


def rnn_encoder_decoder(params: Tree, settings: dict[str, Any], source: np.ndarray, target_in: np.ndarray) -> np.ndarray:
    """Cho et al. 2014, appendix A.1, by its letters: z is the share of the *old* state, so all that leads to our z is negated."""
    logits = np.zeros((*target_in.shape, params["out"]["kernel"].shape[1]))
    for b in range(len(source)):
        layer = params["reader"]
        state = np.zeros(len(layer["cell"]["candidate"]))
        for token in source[b][source[b] != 0]:
            inputs = params["embed_source"]["embedding"][token] @ layer["of_input"]["kernel"] + layer["of_input"]["bias"]
            state = _cho_encoder(layer["cell"], state, inputs)
        c = np.tanh(state @ params["summary"]["kernel"])
        state = np.tanh(c @ params["first_state"]["kernel"])
        for i, token in enumerate(target_in[b]):
            word = params["embed_target"]["embedding"][token]
            of_word = word @ params["of_word"]["kernel"] + params["of_word"]["bias"]
            state = _cho_decoder(params["cell"]["past"], state, of_word, c @ params["of_context"]["kernel"])
            units = state @ params["out_state"]["kernel"] + params["out_state"]["bias"]
            units = units + word @ params["out_word"]["kernel"] + c @ params["out_context"]["kernel"]
            hidden = np.array([max(units[2 * k], units[2 * k + 1]) for k in range(len(units) // 2)])
            logits[b, i] = hidden @ params["out"]["kernel"] + params["out"]["bias"]
    return logits


def _cho_encoder(cell: Tree, state: Vector, inputs: Vector) -> Vector:
    """h' = z h + (1 - z) tanh(W x + U (r * h))."""
    width = len(state)
    r = sigmoid(inputs[:width] + state @ cell["gates"][:, :width])
    z = sigmoid(-inputs[width : 2 * width] - state @ cell["gates"][:, width:])
    return z * state + (1.0 - z) * np.tanh(inputs[2 * width :] + (r * state) @ cell["candidate"])


def _cho_decoder(past: np.ndarray, state: Vector, of_word: Vector, of_context: Vector) -> Vector:
    """h' = z h + (1 - z) tanh(W y + r * (U h + C c)): the reset gate closes the way of the context too."""
    width = len(state)
    of_r, of_z, of_n = (slice(k * width, (k + 1) * width) for k in range(3))
    r = sigmoid(of_word[of_r] + state @ past[:, of_r] + of_context[of_r])
    z = sigmoid(-of_word[of_z] - state @ past[:, of_z] - of_context[of_z])
    return z * state + (1.0 - z) * np.tanh(of_word[of_n] + r * (state @ past[:, of_n] + of_context[of_n]))


def transformer(params: Tree, settings: dict[str, Any], source: np.ndarray, target_in: np.ndarray) -> np.ndarray:
    """Vaswani et al. 2017: `settings` has "norm" ("pre" or "post"), "share", "layers" and "heads"."""
    target_table = params["embed_target"]["embedding"]
    source_table = target_table if settings["share"] == "all" else params["embed_source"]["embedding"]
    final = params["out"]["kernel"] if settings["share"] == "none" else target_table.T
    pre, heads = settings["norm"] == "pre", settings["heads"]
    logits = np.zeros((*target_in.shape, final.shape[1]))
    for b in range(len(source)):
        x = _embedded(source_table, source[b][source[b] != 0])
        for number in range(settings["layers"]):
            layer = params[f"encoder_{number}"]
            x = _around(layer["around_self"], pre, x, lambda x, layer=layer: _heads(layer["self_attention"], heads, x, x))
            x = _around(layer["around_feed_forward"], pre, x, lambda x, layer=layer: _feed_forward(layer["feed_forward"], x))
        memory = _norm(params["top_encoder"], x) if pre else x
        y = _embedded(target_table, target_in[b])
        for number in range(settings["layers"]):
            layer = params[f"decoder_{number}"]
            y = _around(layer["around_self"], pre, y, lambda y, layer=layer: _heads(layer["self_attention"], heads, y, y, causal=True))
            y = _around(layer["around_cross"], pre, y, lambda y, layer=layer: _heads(layer["cross_attention"], heads, y, memory))  # noqa: B023
            y = _around(layer["around_feed_forward"], pre, y, lambda y, layer=layer: _feed_forward(layer["feed_forward"], y))
        logits[b] = (_norm(params["top_decoder"], y) if pre else y) @ final
    return logits


def _embedded(table: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """sqrt(d) E[token] + PE[position], with PE[p, 2i] = sin(p / 10000^(2i/d)) and PE[p, 2i+1] = cos of the same."""
    width = table.shape[1]
    rows = []
    for position, token in enumerate(tokens):
        row = np.sqrt(width) * table[token]
        for column in range(width):
            angle = position / 10000.0 ** (2 * (column // 2) / width)
            row[column] += np.sin(angle) if column % 2 == 0 else np.cos(angle)
        rows.append(row)
    return np.array(rows)


def _around(params: Tree, pre: bool, x: np.ndarray, function: Any) -> np.ndarray:
    """x + f(LN(x)), or LN(x + f(x))."""
    return x + function(_norm(params["scale"], x)) if pre else _norm(params["scale"], x + function(x))


def _norm(params: Tree, x: np.ndarray) -> np.ndarray:
    """(x - mean) / sqrt(variance + 1e-6) * g + b, each row alone, the variance over d."""
    rows = [(row - row.mean()) / np.sqrt(((row - row.mean()) ** 2).mean() + 1e-6) for row in x]
    return np.array(rows) * params["scale"] + params["bias"]


def _feed_forward(params: Tree, x: np.ndarray) -> np.ndarray:
    """max(0, x W_1 + b_1) W_2 + b_2."""
    inner = x @ params["inner"]["kernel"] + params["inner"]["bias"]
    return np.where(inner > 0, inner, 0.0) @ params["outer"]["kernel"] + params["outer"]["bias"]


def _heads(params: Tree, heads: int, x: np.ndarray, memory: np.ndarray, causal: bool = False) -> np.ndarray:
    """concat_h(softmax(q_h k_h^T / sqrt(D)) v_h) W_o; `causal`: position i sees the positions up to i."""
    query, key, value = x @ params["w_query"]["kernel"], memory @ params["w_key"]["kernel"], memory @ params["w_value"]["kernel"]
    width = query.shape[1] // heads
    joined = np.zeros_like(query)
    for h in range(heads):
        part = slice(h * width, (h + 1) * width)
        for i in range(len(x)):
            seen = range(i + 1 if causal else len(memory))
            weights = softmax(np.array([query[i, part] @ key[j, part] / np.sqrt(width) for j in seen]))
            for weight, j in zip(weights, seen, strict=True):
                joined[i, part] += weight * value[j, part]
    return joined @ params["out"]["kernel"]


ORACLES = {"rnn_encoder_decoder": rnn_encoder_decoder, "rnnsearch": rnnsearch, "transformer": transformer}
