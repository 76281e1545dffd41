"""Exact generators of diagnostic texts: each asks for one ability, and for little else.

Sources of the task `diagnostics`; see `attnlab.data.asked` for what a text with questions is. All
draw the split of a text from its own hash (90/5/5), so no text is in two splits.
"""
