"""Kernels: how an exact attention is computed; none changes the result beyond rounding."""
