"""Settings of every box; the weakest layer. Stacks and models bring their own: write here what you want otherwise."""
