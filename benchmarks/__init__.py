"""Benchmarks: how to run them and what came out is in docs/performance.md."""
