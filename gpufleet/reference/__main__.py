"""`python -m gpufleet.reference`: makes the made parts of docs/reference anew, in a checkout."""

import sys

from gpufleet.errors import WRONG, ConfigError
from gpufleet.reference.pages import PAGES, REFERENCE, made


def main() -> int:
    """The exit code: 0, or 2 when a page has no place for a part, or there are no pages; then the rest is as it was."""
    if not REFERENCE.is_dir():
        print(f"{REFERENCE} is not there: the pages are in a checkout only", file=sys.stderr)
        return WRONG
    for name in PAGES:
        page = REFERENCE / f"{name}.md"
        before = page.read_text(encoding="utf-8")
        try:
            text = made(name, before)
        except ConfigError as error:
            print(*(f"docs/reference/{name}.md: {problem}" for problem in error.problems), sep="\n", file=sys.stderr)
            return WRONG
        if text != before:
            page.write_text(text, encoding="utf-8")
            print(f"docs/reference/{name}.md: made anew")
    return 0


if __name__ == "__main__":
    sys.exit(main())
