"""Recurrent systems, from the encoder-decoder of 2013 on."""
