"""The small kit for pages and tables: HTML, SVG, tables and their forms as text. It knows nothing
of experiments.
"""
