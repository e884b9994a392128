"""Drills: which failures count as one, how a drill ended, and what drills change on nodes. Pure."""
