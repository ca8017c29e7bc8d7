"""The pages that are generated from the code, so that no fact is written twice: `make docs` writes them.

`pages()` returns path → content; tests/test_tidy.py compares it with the files in the tree.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]


def pages() -> dict[str, str]:
    from ottla import handlers
    from ottla.config import manual
    from ottla.handlers.call import REGISTRY
    from ottla.metrics import manual as metrics
    from ottla.wire import table
    from scripts import api

    handlers.load()
    served = {key: registered.versions for key, registered in REGISTRY.items()}
    return {
        "docs/api.md": api.page(),
        "docs/metrics.md": metrics.page(),
        "docs/options.md": manual.page(),
        "docs/protocol.md": table.page(served),
    }


if __name__ == "__main__":
    for page, content in pages().items():
        (ROOT / page).write_text(content, encoding="utf-8")
        print(page)
