"""The controller's endpoint for agents: HTTPS on a port of its own. One agent a Job reports, and reads its answer.

It knows who reports (a pod, by its token), and which group that is. What the report means is for `controller` to
decide.
"""
