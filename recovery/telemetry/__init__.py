"""What operators see of the controller: metrics, structured logs, and the HTTP server for metrics and probes.

Nothing here decides or acts, and nothing of the controller imports it: it implements the observer Protocols of `kube`
and `controller` structurally.
"""
