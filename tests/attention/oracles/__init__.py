"""Float64 NumPy references of the mechanisms, written from the papers' formulas with plain loops.
One per mechanism, by registered name.

Each takes the mechanism's parameters, its configuration, query [B,Tq,dq], source [B,Tk,ds], a
boolean mask [B,Tq,Tk] (True may be seen) and, for position schemes that ask, whether no query sees
a later key; it returns (context [B,Tq,d], weights [B,H,Tq,Tk]). Scores, alignments and position
schemes have references of their own (`score_oracles.py`, `alignment_oracles.py`,
`position_oracles.py`), which these put together.
"""

from typing import Any

import numpy as np

from tests.attention.oracles import heads, latent, linear, selected, single, synthetic
from tests.attention.oracles.rows import Array, Config, Oracle, Result, affine, part

__all__ = ["ORACLES", "Oracle", "Result", "part"]


def multi_step(
    params: Any, config: Config, query: Array, source: Array, mask: Array, causal: bool = False
) -> Result:
    """q_0 = x W_q, q_{n+1} = q_n + context(q_n), `steps` times; the sum of the contexts, and the
    maps of all steps as heads.
    """
    name, fields = part(config, "looks", "multihead")
    query = affine(params["w_query"], query)
    total, maps = np.zeros(query.shape), []
    for _ in range(config["steps"]):
        context, weights = ORACLES[name](
            params.get("looks", {}), fields, query + total, source, mask, causal
        )
        total = total + context
        maps.append(weights)
    return total, np.concatenate(maps, axis=1)


ORACLES: dict[str, Oracle] = {
    "single": single.single,
    "multihead": heads.multihead,
    "talking_heads": heads.talking_heads,
    "differential": heads.differential,
    "gated": heads.gated,
    "forgetting": heads.forgetting,
    "tensor_product": heads.multihead,
    "path": selected.path,
    "lightning_indexer": selected.lightning_indexer,
    "native_sparse": selected.native_sparse,
    "latent": latent.latent,
    "hops": latent.hops,
    "key_value": single.key_value,
    "key_value_predict": single.key_value_predict,
    "multi_step": multi_step,
    "linformer": synthetic.linformer,
    "synthesizer": synthetic.synthesizer,
    "linear": linear.linear,
}
