"""Published systems, one file each, built from shared layers and from whatever mechanism the config names."""

from attnlab.registry import Table

SYSTEMS = Table(
    "system",
    {
        "rctm": "attnlab.systems.rctm:RCTM",
        "rnn_encoder_decoder": "attnlab.systems.rnn_encoder_decoder:RNNEncoderDecoder",
        "seq2seq": "attnlab.systems.seq2seq:SequenceToSequence",
        "rnnsearch": "attnlab.systems.rnnsearch:RNNsearch",
        "luong": "attnlab.systems.luong:Luong",
        "gnmt": "attnlab.systems.gnmt:GNMT",
        "cgru": "attnlab.systems.cgru:ConditionalGRU",
        "pointer_generator": "attnlab.systems.pointer_generator:PointerGenerator",
        "convs2s": "attnlab.systems.convs2s:ConvS2S",
        "transformer": "attnlab.systems.transformer:Transformer",
        "lstm_lm": "attnlab.systems.lstm_lm:LSTMLanguageModel",
        "attention_lm": "attnlab.systems.attention_lm:AttentionLanguageModel",
        "ngram_rnn": "attnlab.systems.ngram_rnn:NgramRNN",
        "lstmn_lm": "attnlab.systems.lstmn:LSTMNLanguageModel",
        "lstmn_classifier": "attnlab.systems.lstmn:LSTMNClassifier",
        "lstmn_pair": "attnlab.systems.lstmn_fusion:LSTMNPairClassifier",
        "lstmn_seq2seq": "attnlab.systems.lstmn_fusion:LSTMNTranslator",
        "bilstm_pooling": "attnlab.systems.bilstm_pooling:BiLSTMPooling",
        "attention_pooling": "attnlab.systems.attention_pooling:AttentionPooling",
        "self_attentive": "attnlab.systems.self_attentive:SelfAttentive",
    },
    base="attnlab.systems.protocol:System",
    given=("source_vocabulary", "target_vocabulary", "vocabulary", "classes"),
)
