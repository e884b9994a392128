"""Decides. Pure and total: no asyncio, no clock, no randomness, no I/O, no logging; `now` is always passed in."""
