"""What a checkpoint is, told from its own config.json and the headers of its safetensors files."""
