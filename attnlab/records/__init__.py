"""What a run leaves on disk, and how it is read: atomic files, the metric stream, events, manifest,
provenance, scores and items. Imports no jax.
"""
