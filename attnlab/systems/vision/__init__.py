"""Systems that read images."""
