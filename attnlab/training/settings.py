"""The settings of training: the nodes `training`, `checkpoint`, `parallel` and `lora` of a config.
Importing this module loads no jax.
"""

import dataclasses
from typing import Literal

from attnlab.config.schema import (
    ABOVE_ZERO,
    AT_LEAST_ZERO,
    COUNT,
    LONGEST,
    RATE,
    SHARE,
    STEPS,
    Node,
    setting,
    whole,
)
from attnlab.errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stop(Node):
    """When training ends before its last step: a measure does not improve any more."""

    measure: str = setting("a score on the validation split that is watched; '': none", "")
    patience: int = setting("evaluations in a row without a gain, then it ends", 3, within=COUNT)
    min_delta: float = setting("a gain is more than this", 0.0, within=AT_LEAST_ZERO)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training(Node):
    """How long and how it is trained."""

    steps: int = setting("updates of the whole run (batches, not epochs)", within=whole(1, STEPS))
    accumulate: int = setting(
        "parts of a batch, one after another, whose gradients are one", 1, within=whole(1, 2**16)
    )
    clip: float = setting(
        "norm to which longer gradients are scaled down; 0: none", 1.0, within=AT_LEAST_ZERO
    )
    label_smoothing: float = setting("probability spread over all other answers", 0.0, within=RATE)
    ema: float = setting("decay of a moving average of the parameters; 0: none", 0.0, within=RATE)
    compute: Literal["float32", "bfloat16"] = setting(
        "what the loss is computed in; parameters stay float32", "float32"
    )
    precision: Literal["float32", "tensorfloat32", "bfloat16"] = setting(
        "how float32 arrays are multiplied; the others are faster and rougher on accelerators (a GPU"
        " takes TF32 for both, a TPU 3 passes of bfloat16, or 1, in place of 6)",
        "float32",
    )
    freeze: tuple[str, ...] = setting(
        "parameters whose path has one of these regular expressions are not trained", ()
    )
    rates: tuple[str, ...] = setting(
        "'REGEX=FACTOR': updates of parameters times a factor, that of the first their path has", ()
    )
    layer_decay: float = setting(
        "updates times so much to the power of how far a layer is below the last", 1.0, within=SHARE
    )
    log_every: int = setting("updates between two records of the loss", 50, within=COUNT)
    evaluate_every: int = setting(
        "updates between two evaluations on the validation split; 0: only at the end",
        250,
        within=whole(0),
    )
    evaluate_rows: int = setting(
        "rows of the validation split that are scored while training, in whole batches from all over"
        " it; 0: all",
        0,
        within=whole(0),
    )
    lag: int = setting(
        "steps that are started before the metrics of one are fetched; changes no record; -1: none"
        " on a processor, else 2",
        -1,
        within=whole(-1, 100),
    )
    after: str = setting("the run to go on from, FOLDER[@STEP]; {seed} is this run's; '': none", "")
    metrics: tuple[str, ...] = setting(
        "more scores: statistics of heads ('entropy'), your own functions ('module:function')", ()
    )
    stop: Stop


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenTraining(Training):
    """How long and how it is trained, where tokens are predicted."""

    per: Literal["token", "sentence"] = setting("what the summed loss is divided by", "token")
    output_bias: Literal["unigram", "zeros"] = setting(
        "the bias of the last layer starts at how often each token is, or as the system has it",
        "zeros",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextTraining(TokenTraining):
    """How long and how it is trained, where the tokens of long texts are predicted."""

    logits_at_once: int = setting(
        "tokens of a row whose logits are computed at a time, so that a long text with a large"
        " vocabulary fits into memory; 0: all",
        0,
        within=whole(0, LONGEST),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoint(Node):
    """Which states of a run are kept."""

    every: int = setting("updates between two states; 0: only at the end", 250, within=whole(0))
    keep: int = setting("how many of the latest stay, beside the best", 2, within=COUNT)
    by: str = setting("the score on the validation split of which the best is used", "loss")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parallel(Node):
    """On which devices it is trained."""

    backend: Literal["auto", "pmap", "mesh"] = setting(
        "a copy of the state on each device (pmap), or one program over all (mesh); 'auto' is pmap"
        " while only `data` is above 1",
        "auto",
    )
    devices: int = setting("how many devices; 0: all there are", 0, within=whole(0, 2**16))
    data: int = setting(
        "copies of the state, each with its rows of a batch; -1: what the other axes leave",
        -1,
        within=whole(-1, 2**16),
    )
    fsdp: int = setting(
        "parts into which each large array of the state is divided; a part has its rows too",
        1,
        within=whole(1, 2**16),
    )
    tensor: int = setting("nothing yet, leave it at 1", 1, within=whole(1, 2**16))
    sequence: int = setting("nothing yet, leave it at 1", 1, within=whole(1, 2**16))
    rules: tuple[str, ...] = setting(
        "how arrays are divided: 'REGEX=AXIS@DIMENSION' of their paths, or 'MODULE:FUNCTION' of"
        " (path, shape); what none names is divided by fsdp along its largest dimension",
        (),
    )

    def check(self) -> None:
        """Raises `UserError` for settings that do not go together: pmap with a divided state, rules
        without fsdp, or a data axis of 0.
        """
        if self.data == 0:
            raise UserError("config.parallel.data=0: expected -1 (the rest) or at least 1")
        divided = [name for name in ("fsdp", "tensor", "sequence") if getattr(self, name) > 1]
        if self.backend == "pmap" and divided:
            raise UserError(
                f"config.parallel.{divided[0]}={getattr(self, divided[0])} divides the state, and"
                " parallel.backend=pmap copies it; take mesh or auto"
            )
        if self.rules and self.fsdp == 1:
            raise UserError("config.parallel.rules says how fsdp divides arrays; set parallel.fsdp")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lora(Node):
    """Low-rank adaptation: matrices are trained by a product of two narrow ones that is added."""

    rank: int = setting(
        "inner width of the products; 0: none, all parameters train", 0, within=whole(0, 2**16)
    )
    alpha: float = setting("products are multiplied by alpha / rank", 16.0, within=ABOVE_ZERO)
    dropout: float = setting(
        "dropout rate before products, one mask for all tokens of a microbatch", 0.0, within=RATE
    )
    on: tuple[str, ...] = setting(
        "matrices whose path has one of these regular expressions get a product",
        ("w_query/kernel", "w_value/kernel"),
    )
    also: tuple[str, ...] = setting(
        "parameters whose path has one of these are trained beside the products", ()
    )
