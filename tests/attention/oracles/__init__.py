"""Float64 NumPy references of the mechanisms, written from the papers' formulas with plain loops.
One per mechanism, by registered name.

Each takes the mechanism's parameters, its configuration, query [B,Tq,dq], source [B,Tk,ds], a
boolean mask [B,Tq,Tk] (True may be seen) and, for position schemes that ask, whether no query sees
a later key; it returns (context [B,Tq,d], weights [B,H,Tq,Tk]). Scores, alignments and position
schemes have references of their own (`score_oracles.py`, `alignment_oracles.py`,
`position_oracles.py`), which these put together.
"""

import numpy as np

from tests.attention.oracles import heads, linear, selected
from tests.attention.oracles.rows import Look, Oracle, Result, of_look, part

__all__ = ["ORACLES", "Oracle", "Result", "part"]


def multi_step(look: Look) -> Result:
    """q_0 = x W_q, q_{n+1} = q_n + context(q_n), `steps` times; the sum of the contexts, and the
    maps of all steps as heads.
    """
    name, fields = part(look.config, "looks", "multihead")
    query = look.layer("w_query", look.query)
    total, maps = np.zeros(query.shape), []
    for _ in range(look.config["steps"]):
        context, weights = ORACLES[name](
            look.params.get("looks", {}), fields, query + total, *look[3:]
        )
        total = total + context
        maps.append(weights)
    return total, np.concatenate(maps, axis=1)


_REFERENCES = (
    (heads, "multihead talking_heads differential gated forgetting"),
    (selected, "path lightning_indexer native_sparse"),
    (heads, "single key_value key_value_predict latent hops linformer synthesizer"),
    (linear, "linear"),
)
ORACLES: dict[str, Oracle] = {
    name: of_look(getattr(module, name)) for module, names in _REFERENCES for name in names.split()
}
ORACLES |= {"multi_step": of_look(multi_step), "tensor_product": ORACLES["multihead"]}
