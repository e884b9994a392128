"""The files for Prometheus and Grafana are generated, and have not drifted."""
