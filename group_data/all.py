"""Settings of every box; the weakest layer. Stacks and models bring their own: write here what you want otherwise."""

# The engine for boxes that name none. This version ships the CPU stack; see docs/status.md.
stack = "vllm-0.27.1-cpu"
