"""Pieces that systems are built from and that are not attention: recurrent cells, feed-forward
blocks, embeddings.
"""
