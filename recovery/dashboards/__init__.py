"""Generates the files for Prometheus and Grafana: recording rules, alerts, and dashboards.

`python -m recovery.dashboards` writes them. The controller does not import this package.
"""
