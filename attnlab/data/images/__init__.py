"""Images: sources (generated, from files), what a run learns of them, and how they are changed in
training.
"""
