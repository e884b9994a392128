"""Turns changes into reconciles and reconciles into actions: queue, reconciler, runner."""
