"""The embedded cluster: an API server, its controllers, kubelets and training, in one process."""
