"""Turns changes into looks and looks into deeds: queue, reconciler, runner."""
