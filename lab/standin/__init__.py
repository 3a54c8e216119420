"""A stand-in for vLLM: the same command, API, metrics and log lines, without a model.

It starts at once, and misbehaves when it is told to. The lab packs this folder into a wheel (lab/engine.py): standard
library only, relative imports only.
"""
