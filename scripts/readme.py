"""Hatchling hook for the page on the package index: the README, with links that also work there.

A relative link becomes an absolute one to the same file in the repository; a picture's becomes one to its raw bytes.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)(\[[^\]]*\])\((?!https?:|#|mailto:)([^)\s]+)\)")
PICTURE = re.compile(r'(<img [^>]*src=")(?!https?:)([^"]+)')


class ReadmeHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, metadata["urls"]["Source"])}


def absolute(text: str, source: str) -> str:
    text = LINK.sub(
        lambda found: f"{found[1]}{found[2]}({source}/{'raw' if found[1] else 'blob'}/main/{found[3]})", text
    )
    return PICTURE.sub(rf"\g<1>{source}/raw/main/\g<2>", text)
