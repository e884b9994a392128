"""Real nodes on one machine: kubelet, containerd, runc, kube-proxy and the cluster's DNS, without Docker.

    enter_network()  # before the first thread
    async with RealCluster.start(nodes=3) as cluster:
        await cluster.nodes[0].lose_power()

Each node is a tree of processes in PID, mount, cgroup and network namespaces of its own; the nodes and the control
plane meet on one bridge, in a network namespace of the test run. After it, nothing of it is left on the machine.
"""
