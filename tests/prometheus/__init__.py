"""Rules, alerts and monitors on real Prometheus, and the controller scraped by it."""
