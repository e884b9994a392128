"""Runs a script with 64-bit floats: `double_precision.py SCRIPT ARGUMENTS...`.

Two runs of one training add up their floats in different orders, and the rounding error of 32-bit floats grows: 3e-7 of
the loss after 60 steps, 3e-4 after 300, 5e-3 after 630. A faster machine trains more steps before a test ends, so no
bound for 32 bits holds. With 64 bits, two and three ranks differ by 6.4e-16 after 1,500 steps.
"""

import runpy
import sys

import torch  # type: ignore[import-not-found]  # only the environment of the examples has it

torch.set_default_dtype(torch.float64)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
