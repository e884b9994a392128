"""Kubelets: nodes, the pods on them, and the ways in which both fail."""
