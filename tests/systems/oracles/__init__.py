"""Whole forward passes in float64 NumPy with plain loops, written from the papers: one sentence,
one position, one head at a time.

Each sequence-to-sequence oracle takes the system's parameters (float64), its settings, source ids
[B,S] and decoder input [B,T] with padding 0, and returns the logits [B,T,V]. Padding is not masked
but never read: a sentence is cut to its real length first. That of a language model takes its
tokens [B,T] instead of the two, and leaves zeros where there is padding; that of a classifier takes
one text, or two, [B,S] and [B,T], and returns the logits [B,C]; that of a classifier of tokens
takes tokens and types [B,T] and returns [B,T,O]; that of a classifier of images takes images
[B,H,W,C] and returns [B,C], that of a classifier of pixels [B,H,W,C']; that of a detector returns
logits [L,B,N,C+1] and boxes [L,B,N,4]; that of a captioner takes what is looked at [B,L,D] and
decoder input; that of what answers questions about images takes images and questions, [B,H,W,C] and
[B,S], and returns [B,C]. Most are written for one row, see `of_each_row` and `of_each_token` in
`parts.py`.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from tests.systems.oracles import convs2s, lstmn, readers, recurrent, transformers, viewers, vision

NAMES: dict[ModuleType, str] = {
    convs2s: "convs2s",
    viewers: """
    cnn_lstm stacked_attention co_attention bottom_up cross_attention
    show_attend_tell top_down captioning_transformer
    """,
    readers: """
    lstm_lm attention_lm ngram_rnn bilstm_pooling attention_pooling self_attentive bilstm_tagger
    """,
    lstmn: "lstmn_lm lstmn_classifier lstmn_pair lstmn_seq2seq",
    recurrent: "seq2seq luong gnmt rnn_encoder_decoder rnnsearch cgru rctm pointer_generator",
    transformers: "transformer decoder encoder encoder_classifier bert bert_classifier",
    vision: "cnn resnet segmenter vit detr glimpses perceptron",
}
ORACLES: dict[str, Callable[..., Any]] = {
    name: getattr(module, name) for module, names in NAMES.items() for name in names.split()
}
"""By the name of the system."""
