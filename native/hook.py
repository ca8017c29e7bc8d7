"""Hatchling's build hook: with Rust, pip builds the extension; without Rust, the package is pure Python.

An editable install puts it next to the sources of the clone. A wheel contains it, and its tag names the stable ABI and
the platform. If it cannot be built, the reason is one line of the output (`pip install -v` shows it). A wheel for a
given target (`native/build.py`) always has the extension; otherwise the build fails.
"""

import importlib.util
import os
import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags

_spec = importlib.util.spec_from_file_location("ottla_native_build", Path(__file__).with_name("build.py"))
assert _spec
assert _spec.loader
crate = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(crate)


class NativeHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        try:
            if version == "editable":
                crate.build_in_place()
                return
            library = crate.build()
        except crate.NotBuilt as error:
            if crate.TARGET in os.environ:
                raise
            self.app.display_warning(f"{error.details}native: {error}: {crate.TWIN}")
            return
        build_data["force_include"][str(library)] = f"ottla/{crate.MODULE}"
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{platform_tag()}"


def platform_tag() -> str:
    """Of the target; without one, of this machine alone: nobody has checked which others the library runs on."""
    if target := os.environ.get(crate.TARGET):
        ((machine, glibc),) = re.findall(r"^(\w+)-unknown-linux-gnu\.2\.(\d+)$", target)
        return f"manylinux_2_{glibc}_{machine}"
    return next(tag.platform for tag in sys_tags() if "many" not in tag.platform and "musl" not in tag.platform)
