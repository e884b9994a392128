"""A cluster in memory, the trials of the controller in it, and the demo.

Kubelets and training speak through the ports only, so that the same pods live on a real API server and on the modelled
one. Of the product only `recovery simulate` imports this package, and only when it is called.
"""
