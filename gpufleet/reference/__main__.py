"""`python -m gpufleet.reference`: makes the made parts of docs/reference anew, in a checkout."""

from gpufleet.reference.pages import PAGES, REFERENCE, made

if __name__ == "__main__":
    for name in PAGES:
        page = REFERENCE / f"{name}.md"
        text = made(name, page.read_text(encoding="utf-8"))
        if text != page.read_text(encoding="utf-8"):
            page.write_text(text, encoding="utf-8")
            print(f"docs/reference/{name}.md: made anew")
