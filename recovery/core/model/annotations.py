"""Our annotations that facts and their diagnosis read; those that a policy or a verb gives meaning to stand there."""

OWN_ANNOTATION_PREFIX = "recovery.trainjob.dev/"
"""Annotations that the controller or its users write; no others are read."""

TRAINING_CONTAINER_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}container"
"""On a pod template, or on the workload for all of its Jobs: the name of the container that trains."""
