"""Useful GPU-hours of one job under several responses to a lost node, from an event-driven model without a cluster.

`failures` draws what happens to the machines. `job` plays it for one strategy. `arms` compares the strategies.
"""
