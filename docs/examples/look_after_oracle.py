"""What `look_after.py` computes, in float64 NumPy: written from the formula alone, one sentence and one word at a time."""

import numpy as np

SETTINGS = [
    {"embedding": 5, "width": 6, "attention": {"name": "single", "score": {"name": "dot"}}},
    {"embedding": 5, "width": 6, "attention": {"name": "multihead", "heads": 2}},
]


def oracle(params, settings, source, target_in):
    """Logits [B,T,V] of source [B,S], padding 0, and target_in [B,T], BOS first."""
    if settings["attention"]["name"] != "single":
        raise NotImplementedError("written for the score 'dot'")
    found = []
    for words, read in zip(source, target_in, strict=True):
        given = params["embed_source"]["embedding"][words[words != 0]]
        forward = states(params["reader"]["forward"], given)
        backward = states(params["reader"]["backward"], given[::-1])[::-1]
        annotations = np.concatenate([forward, backward], axis=1)
        for h in states(params["writer"], params["embed_target"]["embedding"][read]):
            raised = np.exp(annotations @ h)
            context = raised / raised.sum() @ annotations
            attended = np.tanh(np.concatenate([context, h]) @ params["combine"]["kernel"])
            found.append(attended @ params["out"]["kernel"] + params["out"]["bias"])
    return np.reshape(found, (*target_in.shape, -1))


def states(layer, given):
    """The states [T,H] of a GRU over given [T,E]: r, z = sigmoid, n = tanh, h' = (1 - z) h + z n."""
    gates, candidate = layer["cell"]["gates"], layer["cell"]["candidate"]
    h, found = np.zeros(len(gates)), []
    for x in given @ layer["of_input"]["kernel"] + layer["of_input"]["bias"]:
        of_gates, of_n = np.split(x, [2 * len(h)])
        r, z = np.split(1 / (1 + np.exp(-of_gates - h @ gates)), 2)
        h = (1 - z) * h + z * np.tanh(of_n + (r * h) @ candidate)
        found.append(h)
    return np.array(found)
