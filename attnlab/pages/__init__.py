"""Pages and tables: HTML, SVG, tables and their forms as text. Nothing here knows about
experiments.
"""
