"""What Prometheus and Grafana are given is generated, and has not drifted."""
