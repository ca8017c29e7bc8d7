"""The pages that are derived from the code, so that no fact is written twice: `make docs` writes them.

`pages()` gives path → content; the tidy test compares it with what is kept.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))


def pages() -> dict[str, str]:
    from ottla.config.manual import page as options

    return {"docs/options.md": options()}


if __name__ == "__main__":
    for page, content in pages().items():
        (ROOT / page).write_text(content, encoding="utf-8")
        print(page)
