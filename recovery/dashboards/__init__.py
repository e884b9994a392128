"""Generates what Prometheus and Grafana are given: recording rules, alerts, and dashboards.

`python -m recovery.dashboards` writes them. Nothing of the controller imports this package.
"""
