"""Runs the experiment of a file on a job, with the rights of the person who asks: a drill.

The same engine runs against a real cluster and against the modelled one. It decides nothing about the job: that is what
the drill tests.
"""
