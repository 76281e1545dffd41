"""Attention mechanisms: one protocol (`remember`, `read`, `extend`), one table of names.

A new mechanism is one file and one line here. A mechanism outside the package needs no line: a
config names it by its dotted path, `my_package.my_file:MyAttention`.
"""

from typing import TYPE_CHECKING

from attnlab.config.registry import Table

if TYPE_CHECKING:
    from attnlab.attention.mixer import Mixer

MECHANISMS: "Table[type[Mixer]]" = Table(
    "mechanism",
    {
        "single": "attnlab.attention.mechanisms.single:Single",
        "multihead": "attnlab.attention.mechanisms.multihead:MultiHead",
        "talking_heads": "attnlab.attention.mechanisms.head_variants:TalkingHeads",
        "differential": "attnlab.attention.mechanisms.head_variants:Differential",
        "gated": "attnlab.attention.mechanisms.head_variants:Gated",
        "forgetting": "attnlab.attention.mechanisms.forgetting:Forgetting",
        "tensor_product": "attnlab.attention.mechanisms.tensor_product:TensorProduct",
        "path": "attnlab.attention.mechanisms.path:Path",
        "lightning_indexer": "attnlab.attention.mechanisms.indexer:LightningIndexer",
        "native_sparse": "attnlab.attention.mechanisms.native_sparse:NativeSparse",
        "latent": "attnlab.attention.mechanisms.latent:Latent",
        "hops": "attnlab.attention.mechanisms.hops:Hops",
        "key_value": "attnlab.attention.mechanisms.single:KeyValue",
        "key_value_predict": "attnlab.attention.mechanisms.single:KeyValuePredict",
        "multi_step": "attnlab.attention.mechanisms.multi_step:MultiStep",
        "linformer": "attnlab.attention.mechanisms.linformer:Linformer",
        "synthesizer": "attnlab.attention.mechanisms.synthesizer:Synthesizer",
        "linear": "attnlab.attention.mechanisms.linear:Linear",
    },
    base="attnlab.attention.mixer:Mixer",
    given=("width",),
    declares=("capabilities",),
)
