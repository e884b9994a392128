"""A cluster in memory, the trials of the controller in it, and the demo.

Kubelets and training use only the ports, so the same pods run against a real API server and against the modelled one.
In the product only `recovery simulate` imports this package, and only when it is called.
"""
