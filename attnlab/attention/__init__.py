"""Attention mechanisms: one protocol (`remember`, `read`, `extend`), one table of names.

A new mechanism is one file and one line here; a mechanism outside the package needs no line at all: a config may name
it by its dotted path, `my_package.my_file:MyAttention`.
"""

from attnlab.registry import Table

MECHANISMS = Table(
    "mechanism",
    {
        "additive": "attnlab.attention.mechanisms.additive:Additive",
        "multihead": "attnlab.attention.mechanisms.multihead:MultiHead",
    },
)
