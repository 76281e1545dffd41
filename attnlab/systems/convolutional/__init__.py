"""Convolutional systems."""
