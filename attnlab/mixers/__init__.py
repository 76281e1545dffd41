"""Mixers with a memory of their own making: LSTMN's tape, and scans over time."""
