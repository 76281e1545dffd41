"""The page docs/mechanisms.md: every mechanism and every part it can be put together from, written
by the code itself.
"""

import dataclasses
import functools
from collections.abc import Sequence

from attnlab.commands import listing, networks

COMMAND = "python launch.py list --markdown > docs/mechanisms.md"
HEAD = f"""\
# Mechanisms and their parts

Written by `{COMMAND}`
from the tables, the docstrings and the cards of the components; a test says when it is out of date.

Letters: B batch, T length (Tq queries, Tk keys), d width of the context, dq/ds widths of query and source, H heads, K key heads,
D width of a head; A hidden width of a score, L positions of the location score, k clip of a relative scheme, C and R latent and rotary
width, r hops, N steps, M features; of visibilities w window, l stride, c summary, b block, r random blocks, g global tokens, n first keys.

*time* is how the FLOPs of a look grow with T = Tq = Tk, of a part for one head; *state* how the numbers a memory keeps do. How FLOPs are
counted stands in `attnlab/analysis/work.py`; `tests/attention/test_cards.py` compares them with the program.
The *time* of a visibility is how many pairs may be seen, which a kernel that skips blocks comes near to.
"""
MIXERS = """\
Further layers for slots that only mix: self-attention in Transformers (`--config.system.attention=NAME`, `decoder_attention`,
`encoder_attention`). Those that are attention also read another sequence. Letters here: M features, m landmarks or tokens of a chunk, n
buckets, r rounds, g global tokens, w window, F or H a hidden width, k tokens of a convolution."""
PARTS = {
    "scores": "What a mechanism takes as `score`: how a query and a key fit.",
    "alignments": "What a mechanism takes as `alignment`: scores to weights.",
    "positions": "What a mechanism (or, for those on embeddings, a system) takes as `positions`.",
    "visibilities": "What a system takes as a visibility: who may see whom.",
    "features": "What `linear` takes as `features`: the weight of a key is a product of features.",
    "gates": (
        "What stands at the place of a gate in an image network: feature maps [B,H,W,C] to the same"
        " shape. Letters here: N = H W places, C channels, r reduction, k kernel."
    ),
    "kernels": (
        "What a mechanism takes as `kernel`: how it is computed; none changes the result beyond"
        " rounding."
    ),
}
TITLES = {"positions": "Position schemes", "features": "Feature maps"}  # others are the kinds
PARAMETERS = """\
## Parameters

What `init` returns under "params", by path, with the layout of each array. Kernels are [in, out], as in Flax; torch keeps its own as
[out, in]. Where heads lie side by side in one axis they stand in order, channel c of head h at h D + c. Beside the letters above:
A hidden width of a score, Q width of the queries' own latent. Everything a mechanism may have is listed: `latent` without
`query_latent` has `w_query/kernel` [dq, H (D + R)] alone, and `bias=True` gives each of the four projections of `multihead` a `bias`.
The source of `single` is as wide as its context, ds = d; where K = H, [ds, K D] is [ds, d]. A score's parameters are those it has inside
`single`; inside `multihead` it sees heads, so that its dq and d are D, and one set of them serves all heads.
"""


@functools.cache
def page() -> str:
    """Returns the whole page docs/mechanisms.md, in Markdown."""
    mixers = _mixers("mechanisms", ""), _mixers("mixers", MIXERS)
    return "\n".join([HEAD, *mixers, *(_part(kind) for kind in PARTS), _parameters()])


def _mixers(kind: str, text: str) -> str:
    """Returns a Markdown chapter on a kind of mixers: `text`, a table of its components and a
    section on each; mechanisms are left out unless `kind` is "mechanisms".
    """
    columns = listing.KINDS["mechanisms"].columns
    listed = set() if kind == "mechanisms" else set(listing.components("mechanisms").names())
    rows = listing.component_rows(listing.components(kind), columns)
    rows = [row for row in rows if row[0] not in listed]
    head = [f"## {kind.capitalize()}", "", *([text, ""] if text else [])]
    sections = [_mixer(kind, row[0]) for row in rows]
    return "\n".join([*head, *_table(("name", *columns), rows), "", *sections])


def _mixer(kind: str, name: str) -> str:
    """Returns the Markdown section about the mixer `name` among the components of a `kind`
    ("mechanisms" or "mixers"): its summary, its formula and memory contents if any, and a table of
    its fields.
    """
    from attnlab.attention.protocol import Attention

    mechanism = listing.components(kind).resolve(name)
    fields = [dataclasses.astuple(field) for field in listing.settable_fields(mechanism)]
    formula = listing.formula(mechanism)
    memory = ""
    if isinstance(mechanism, type) and issubclass(mechanism, Attention):
        memory = listing.memory_contents(mechanism)
    lines = [f"### `{name}`", "", listing.summary(mechanism), ""]
    lines += ["```", formula, "```", ""] if formula else []
    lines += [f"Memory: {memory}", ""] if memory else []
    return "\n".join([*lines, *_table(("field", "default", "meaning"), fields), ""])


def _part(kind: str) -> str:
    """Returns the Markdown section about one kind of part, a key of `PARTS`: title, text and a table
    of its components.
    """
    columns = (*listing.KINDS[kind].columns, "fields")
    rows = listing.component_rows(listing.components(kind), columns)
    head = [f"## {TITLES.get(kind, kind.capitalize())}", "", PARTS[kind], ""]
    return "\n".join([*head, *_table(("name", *columns), rows), ""])


def _parameters() -> str:
    """Returns the Markdown section with the parameters (path and array layout) of every mechanism,
    score, alignment and position scheme.
    """
    rows = [
        (f"`{name}`", networks.mechanism_parameters(name))
        for name in listing.components("mechanisms").names()
    ]
    kinds = {"score": "scores", "alignment": "alignments", "positions": "positions"}
    for field, kind in kinds.items():
        for name in listing.components(kind).names():
            if parameters := networks.part_parameters(field, name):
                rows.append((f"`{field}={name}`", parameters))
    return "\n".join([PARAMETERS, *_table(("of", "parameters"), rows), ""])


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of a Markdown table; "|" in cells is escaped."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return [f"| {' | '.join(line)} |" for line in (columns, ["---"] * len(columns), *cells)]
