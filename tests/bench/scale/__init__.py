"""`make bench ARGS=scale`: what a large fleet costs the controller, and how long a loss waits in it.

Three processes on one machine: this one, a fake API server that holds the fleet, and `recovery run` as it is shipped.
The fake server speaks the few requests that the controller makes, with objects of the size and the shape of real ones
(`shapes/`, from a real control plane). It runs a scenario, and measures from outside: when a request arrives, and what
the kernel says about the controller's CPU time and memory.

`python -m tests.bench.scale --help` has the options. With `--against COMMIT` each scenario also runs with the
controller of that commit, and the table has both.
"""
