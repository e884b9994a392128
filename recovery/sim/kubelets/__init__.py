"""Kubelets: nodes, their pods, and how both fail."""
