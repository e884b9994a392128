"""Useful GPU-hours of one job under several answers to a lost node: an event-driven model of its own, not the cluster.

`failures` draws what happens to the machines. `job` plays it through for one strategy. `arms` compares the strategies.
"""
