"""Checks launch settings before a job starts: what Trainer will make of a manifest, and what is wrong with it.

The package is pure: text and objects go in, findings and settings come out. The CLI (`recovery lint`, `recovery
explain-launch`) and admission call the same functions, so that they give the same verdicts. Nothing here imports
another package of this project.
"""
