"""Readers of what comes from elsewhere, tables and images. Each takes all of a file, translates it, or refuses it by name."""
