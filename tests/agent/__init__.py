"""The agent in a pod, on Python only: real processes, and a package that stands for torch."""
