"""A real Kubernetes control plane, with JobSet and Kubeflow Trainer, as child processes of the test run.

The API server, the Job controller, JobSet and Trainer act on the same objects as the controller at the same time. A
model of them can be wrong, so these are the programs themselves, without kubelets.
"""
