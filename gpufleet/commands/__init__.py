"""The commands of `gpufleet`, one module each."""
