"""attnlab: every attention mechanism behind one signature, trained, measured and compared with JAX and Flax."""

__version__ = "0.1.0"
