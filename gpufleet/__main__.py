"""`python -m gpufleet`: the command, where its script is not on the path."""

from gpufleet.cli import main

if __name__ == "__main__":
    main(prog_name="gpufleet")
