"""Readers of what comes from elsewhere: JSON, tables, images. Each takes all of a file, translates it, or refuses it by name."""
