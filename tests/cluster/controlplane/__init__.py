"""A real Kubernetes control plane, with JobSet and Kubeflow Trainer, as child processes of the test run.

The controller is only as good as its understanding of what the API server, the Job controller, JobSet and Trainer do to
the same objects at the same time. Models of them can be wrong; these are the programs themselves, without kubelets.
"""
