"""Runs make targets one after the other, reports how long each took, and accepts a suite only if its tests really ran.

    python -m tests.stages lint+docs unit ~simulation ~seeds test-cluster+real-nodes,contract,walks

- Targets joined by a plus run side by side, because they mostly wait. One side may be a chain: targets joined by
  commas, which run one after the other. A target's output is printed when it has ended.
- A target after a tilde runs beside all that follow it, on the CPU time that these leave.
- The first red stage ends the run. With `--keep-going` all stages run.
- With `--rerun` a test that fails on real components runs once more after all stages (`reruns`).

| module | what it knows |
|---|---|
| `suites` | the targets that are suites of tests, and the tests that may be skipped |
| `reports` | what ran, failed, was skipped and was left out, from the files that pytest leaves |
| `targets` | how a target runs: alone, side by side, in the background |
| `reruns` | which failed tests run once more, and what is made of the second result |
| `summary` | what is printed at the end |
"""
