"""Tasks: what is learned. A task joins data, a system, a loss and its scores."""

from attnlab.registry import Table

TASKS = Table("task", {"translation": "attnlab.tasks.translation:Translation"})
