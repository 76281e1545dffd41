"""What Python programs and notebooks use, and the commands too: trained runs as objects, mechanisms
for arrays. See `docs/python.md`.
"""
