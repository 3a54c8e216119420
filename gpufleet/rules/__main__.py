"""`python -m gpufleet.rules > docs/rules.md`."""

from gpufleet.rules.page import page

if __name__ == "__main__":
    print(page(), end="")
