"""Published systems, a file for each or for each family, built from shared layers and from whatever
mechanism the config names.
"""

from typing import TYPE_CHECKING

from attnlab.config.registry import Table

if TYPE_CHECKING:
    from attnlab.systems.protocol import System

SYSTEMS: "Table[type[System]]" = Table(
    "system",
    {
        "rctm": "attnlab.systems.recurrent.rctm:RCTM",
        "rnn_encoder_decoder": "attnlab.systems.recurrent.rnn_encoder_decoder:RNNEncoderDecoder",
        "seq2seq": "attnlab.systems.recurrent.seq2seq:SequenceToSequence",
        "rnnsearch": "attnlab.systems.recurrent.rnnsearch:RNNsearch",
        "luong": "attnlab.systems.recurrent.luong:Luong",
        "gnmt": "attnlab.systems.recurrent.gnmt:GNMT",
        "cgru": "attnlab.systems.recurrent.cgru:ConditionalGRU",
        "pointer_generator": "attnlab.systems.recurrent.pointer_generator:PointerGenerator",
        "convs2s": "attnlab.systems.convolutional.convs2s:ConvS2S",
        "transformer": "attnlab.systems.transformers.transformer:Transformer",
        "decoder": "attnlab.systems.transformers.decoder:Decoder",
        "encoder": "attnlab.systems.transformers.encoder:Encoder",
        "encoder_classifier": "attnlab.systems.transformers.encoder:EncoderClassifier",
        "bert": "attnlab.systems.transformers.bert:Bert",
        "bert_classifier": "attnlab.systems.transformers.bert:BertClassifier",
        "lstm_lm": "attnlab.systems.recurrent.lstm_lm:LSTMLanguageModel",
        "attention_lm": "attnlab.systems.recurrent.short_spans:AttentionLanguageModel",
        "ngram_rnn": "attnlab.systems.recurrent.short_spans:NgramRNN",
        "lstmn_lm": "attnlab.systems.recurrent.lstmn:LSTMNLanguageModel",
        "lstmn_classifier": "attnlab.systems.recurrent.lstmn:LSTMNClassifier",
        "lstmn_pair": "attnlab.systems.recurrent.lstmn_fusion:LSTMNPairClassifier",
        "lstmn_seq2seq": "attnlab.systems.recurrent.lstmn_fusion:LSTMNTranslator",
        "bilstm_pooling": "attnlab.systems.recurrent.pooling:BiLSTMPooling",
        "bilstm_tagger": "attnlab.systems.recurrent.bilstm_tagger:BiLSTMTagger",
        "attention_pooling": "attnlab.systems.recurrent.pooling:AttentionPooling",
        "self_attentive": "attnlab.systems.recurrent.pooling:SelfAttentive",
        "cnn": "attnlab.systems.vision.classifiers:CNN",
        "resnet": "attnlab.systems.vision.classifiers:ResNet",
        "glimpses": "attnlab.systems.vision.glimpses:Glimpses",
        "segmenter": "attnlab.systems.vision.segmenter:Segmenter",
        "detr": "attnlab.systems.vision.detr:Detr",
        "perceptron": "attnlab.systems.vision.classifiers:Perceptron",
        "vit": "attnlab.systems.vision.vit:ViT",
        "show_attend_tell": "attnlab.systems.vision.show_attend_tell:ShowAttendTell",
        "top_down": "attnlab.systems.vision.top_down:TopDown",
        "captioning_transformer": "attnlab.systems.vision.captioning_transformer:CaptioningTransformer",
        "cnn_lstm": "attnlab.systems.vision.answering:CNNAndLSTM",
        "stacked_attention": "attnlab.systems.vision.stacked_attention:StackedAttention",
        "co_attention": "attnlab.systems.vision.co_attention:CoAttention",
        "bottom_up": "attnlab.systems.vision.bottom_up:BottomUp",
        "cross_attention": "attnlab.systems.vision.cross_attention:CrossAttention",
    },
    base="attnlab.systems.protocol:System",
    given=(
        "source_vocabulary",
        "target_vocabulary",
        "vocabulary",
        "classes",
        "outputs",
        "pad_id",
        "bos_id",
    ),
)
