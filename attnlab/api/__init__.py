"""The API for Python programs, notebooks and the commands: trained runs as objects, mechanisms for
arrays. See `docs/python.md`.
"""
