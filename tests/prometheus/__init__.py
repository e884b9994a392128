"""Rules, alerts and monitors on a real Prometheus, which also scrapes the controller."""
