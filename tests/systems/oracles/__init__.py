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
[B,S], and returns [B,C].
"""

from tests.systems.oracles.answering import (
    bottom_up,
    cnn_lstm,
    co_attention,
    cross_attention,
    stacked_attention,
)
from tests.systems.oracles.attention_lm import attention_lm
from tests.systems.oracles.attention_pooling import attention_pooling
from tests.systems.oracles.bilstm_pooling import bilstm_pooling, bilstm_tagger
from tests.systems.oracles.captioners import captioning_transformer, show_attend_tell, top_down
from tests.systems.oracles.cgru import cgru
from tests.systems.oracles.convs2s import convs2s
from tests.systems.oracles.decoder import decoder
from tests.systems.oracles.detr import detr
from tests.systems.oracles.encoder import bert, bert_classifier, encoder, encoder_classifier
from tests.systems.oracles.glimpses import glimpses, perceptron
from tests.systems.oracles.gnmt import gnmt
from tests.systems.oracles.lstm_lm import lstm_lm
from tests.systems.oracles.lstmn import lstmn_classifier, lstmn_lm, lstmn_pair, lstmn_seq2seq
from tests.systems.oracles.luong import luong
from tests.systems.oracles.ngram_rnn import ngram_rnn
from tests.systems.oracles.pointer_generator import pointer_generator
from tests.systems.oracles.rctm import rctm
from tests.systems.oracles.rnn_encoder_decoder import rnn_encoder_decoder
from tests.systems.oracles.rnnsearch import rnnsearch
from tests.systems.oracles.self_attentive import self_attentive
from tests.systems.oracles.seq2seq import seq2seq
from tests.systems.oracles.transformer import transformer
from tests.systems.oracles.vision import cnn, resnet, segmenter, vit

ORACLES = {
    "seq2seq": seq2seq,
    "luong": luong,
    "gnmt": gnmt,
    "rnn_encoder_decoder": rnn_encoder_decoder,
    "rnnsearch": rnnsearch,
    "rctm": rctm,
    "cgru": cgru,
    "pointer_generator": pointer_generator,
    "convs2s": convs2s,
    "transformer": transformer,
    "decoder": decoder,
    "encoder": encoder,
    "encoder_classifier": encoder_classifier,
    "bert": bert,
    "bert_classifier": bert_classifier,
    "lstm_lm": lstm_lm,
    "attention_lm": attention_lm,
    "ngram_rnn": ngram_rnn,
    "lstmn_lm": lstmn_lm,
    "lstmn_classifier": lstmn_classifier,
    "lstmn_pair": lstmn_pair,
    "lstmn_seq2seq": lstmn_seq2seq,
    "bilstm_pooling": bilstm_pooling,
    "bilstm_tagger": bilstm_tagger,
    "attention_pooling": attention_pooling,
    "self_attentive": self_attentive,
    "cnn": cnn,
    "resnet": resnet,
    "glimpses": glimpses,
    "perceptron": perceptron,
    "segmenter": segmenter,
    "detr": detr,
    "vit": vit,
    "show_attend_tell": show_attend_tell,
    "top_down": top_down,
    "captioning_transformer": captioning_transformer,
    "cnn_lstm": cnn_lstm,
    "stacked_attention": stacked_attention,
    "co_attention": co_attention,
    "bottom_up": bottom_up,
    "cross_attention": cross_attention,
}
