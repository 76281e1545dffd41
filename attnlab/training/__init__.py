"""Training: one loop, one step function, parallel backends, checkpoints and records."""
