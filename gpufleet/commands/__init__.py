"""The commands of `gpufleet`, a module each."""
