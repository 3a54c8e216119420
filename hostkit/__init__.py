"""What runs on a box: standard library and pynvml only, Python >= 3.8, shipped as one zipapp (gpufleet/kit.py)."""
