"""Models of what a real cluster would need machines for: kubelets, and the training that runs on them.

They speak through the ports only, so that the same pods live on a real API server and on a modelled one, in real and in
virtual time. Product code never imports this package.
"""
