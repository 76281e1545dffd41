"""What `hopfield.py` computes, in float64 NumPy: written from the formula alone, to test it against."""

import numpy as np


def oracle(params, config, query, source, mask, causal=False):
    """Context [B,Tq,d] and weights [B,1,Tq,Tk] of query [B,Tq,dq] and source [B,Tk,ds] under mask [B,Tq,Tk], True may be seen."""
    keys, state = source @ params["w_key"]["kernel"], query @ params["w_query"]["kernel"]
    weights = np.zeros(mask.shape)
    for _ in range(config.get("steps", 2)):
        for b, i in np.ndindex(mask.shape[:2]):
            raised = mask[b, i] * np.exp(config.get("beta", 0.5) * keys[b] @ state[b, i])
            weights[b, i] = raised / max(raised.sum(), 1e-300)
        state = weights @ keys
    return state @ params["out"]["kernel"], weights[:, None]
