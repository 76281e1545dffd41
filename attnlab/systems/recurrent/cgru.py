"""Conditional GRU (Nematus, Sennrich et al. 2017): two updates for every word, with attention to
the source between them.

Encoder: ann_j = [forward GRU_j ; backward GRU_j]. Decoder, for i = 1..T:

    s_0      = tanh((mean over j of ann_j) W_s + b)
    s'_i     = GRU_1(s_{i-1}, y_{i-1} W + b)                           after reading the last word
    c_i      = attention(s'_i, ann)                                    any registered mechanism; additive in the paper
    s_i      = GRU_2(s'_i, c_i C + b)
    t_i      = tanh(s_i U_o + y_{i-1} V_o + c_i C_o + b)
    logits_i = t_i W_o + b

The reset gate of all GRUs acts after the product with the state, see `ContextGRUCell`. It grew out
of RNNsearch (`rnnsearch.py`), whose one update comes after the look (or before it, `readout`
"released"), whose first state comes from the first word's annotation, and whose output is a maxout.

Source: R. Sennrich, O. Firat, K. Cho, A. Birch, B. Haddow, J. Hitschler, M. Junczys-Dowmunt, S.
Läubli, A. V. Miceli Barone, J. Mokry, M. Nădejde, "Nematus: a Toolkit for Neural Machine
Translation", EACL 2017 (arXiv 1703.04357), section 2; before that the released code of the DL4MT
tutorial (2015). Otherwise than there: the first word is read as the embedding of BOS (theirs of
nothing), the bias of GRU_2's candidate stands outside of its reset gate, the score "additive" has
none, embeddings are not tied, no factors, no layer normalisation, and dropout draws anew at every
step. With normal=0.01 weights start as in `rnnsearch.py`.

Axis letters: B batch, S source length, T target length, V vocabulary, E embedding, H encoder width,
G decoder width.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from attnlab.attention import MECHANISMS
from attnlab.attention.needs import Need
from attnlab.attention.protocol import Attention
from attnlab.layers.dense import Dense
from attnlab.layers.recurrent import GATES, BidirectionalGRU, ContextGRUCell
from attnlab.systems.protocol import mean_of
from attnlab.systems.recurrent.writer import Decoding, DeepWriter, Encoded


class ConditionalGRU(DeepWriter, kw_only=True):
    """Conditional GRU (Nematus, Sennrich et al. 2017): read the last word, attend to the source,
    read the context. The fields not named here are those of `DeepWriter`.

    Attributes:
      attention: factory of the mechanism; called with the width of the annotations, 2H.
      encoder: H, state width of each encoder direction.
      readout: units of t, the layer before the scores; E in the paper.
      normal: weights but the recurrent ones and the mechanism's start N(0, normal^2); 0 for
        Glorot's initializer.
      dropout: rate on the embeddings, the annotations and t.

    Card: Sennrich, Firat, Cho, Birch, Haddow, et al., Nematus: a Toolkit for Neural Machine
    Translation, EACL 2017.
    """

    attention: Callable[..., Attention]
    encoder: int = 64
    readout: int = 64

    parts = {"attention": MECHANISMS}
    needs = {"attention": Need(role="cross", stepwise=True, history=True)}

    def setup(self) -> None:
        """Creates embeddings, the bidirectional GRU, the attention, the two GRU cells of the
        decoder and the layers before the output.
        """
        initial, dense = self.add_deep_layers(self.readout)
        gates = functools.partial(Dense, GATES * self.decoder, kernel_init=initial.kernel(GATES))
        self.reader = BidirectionalGRU(self.encoder, initial, ContextGRUCell)
        self.first_state = dense(self.decoder)
        self.search = self.attention(width=2 * self.encoder, name="attention")
        self.of_word, self.of_context = gates(), gates()
        self.before, self.after = ContextGRUCell(self.decoder), ContextGRUCell(self.decoder)

    def encode(self, source: jax.Array) -> Encoded:
        """Encodes source ids [B,S] to an `Encoded`: the attention's memory of the annotations, and
        the decoder's first state, made of their mean (zero without words). See `Seq2Seq.encode`.
        """
        valid = self.real(source)
        annotations = self.reader(self.drop(self.embed_source(source)), valid)  # [B,S,2H]
        first = jnp.tanh(self.first_state(mean_of(annotations, valid)))
        return Encoded(self.search.remember(self.drop(annotations), valid), first)

    def transition(
        self, state: Decoding, word: jax.Array, memory: Encoded
    ) -> tuple[Decoding, tuple[jax.Array, jax.Array]]:
        """See `RecurrentWriter.transition`; `word` [B,3G] is y_{i-1} W + b, the output s_i and c_i."""
        between = self.before(state.state, word)
        context, looks = self.look(between, memory, state)
        s = self.after(between, self.of_context(context))
        return Decoding(state.fed + 1, s, None, looks), (s, context)

    def generate(
        self, words: jax.Array, steps: tuple[jax.Array, jax.Array], memory: Encoded
    ) -> jax.Array:
        """See `RecurrentWriter.generate`: the deep output of states [B,T,G] and contexts [B,T,2H]."""
        states, contexts = steps
        units = self.deep_units(states, words, self.out_context(contexts))
        return self.out(self.drop(jnp.tanh(units)))
