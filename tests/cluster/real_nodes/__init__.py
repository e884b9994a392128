"""Real nodes on one machine: kubelet, containerd, runc, kube-proxy and the cluster's DNS, without Docker.

    enter_network()  # before the first thread
    async with RealCluster.start(nodes=3) as cluster:
        await cluster.nodes[0].lose_power()

Each node is a tree of processes in its own PID, mount, cgroup and network namespaces. The nodes and the control plane
share one bridge, in a network namespace of the test run. After the block nothing is left on the machine.
"""
