"""Somebody who tries what a page says: an empty home, one broker, and the blocks one after the other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

from judge import answers, stop_process
from pages.blocks import plain
from waiting import wait_until

from ottla.testing.ports import free_ports

if TYPE_CHECKING:
    from pages.blocks import Block

ROOT = Path(__file__).resolve().parent.parent.parent
KEPT = ("LANG", "LC_ALL", "JAVA_HOME", "TMPDIR")
# Python finds this clone as it would find an installed package; where `ottla` itself lies depends on the clone.
PROGRAMS = {
    "python": 'exec {python} "$@"',
    "pytest": 'exec {python} -m pytest -p no:cacheprovider "$@"',
    "ottla": 'exec {python} -m ottla "$@"',
    "pip": 'exec {python} {pip} "$@"',
}
ASYNC = """import ast, asyncio, sys
code = compile(open(sys.argv[1]).read(), sys.argv[1], "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
coroutine = eval(code, {"__name__": "__main__"})
if coroutine is not None:
    asyncio.run(coroutine)
"""


class Reader:
    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        self._write_programs(folder / "bin")
        (self.port,) = free_ports(1)
        self.address = f"localhost:{self.port}"
        self._background: list[subprocess.Popen[str]] = []
        self._said = ""
        self._environment = {
            **{name: os.environ[name] for name in KEPT if name in os.environ},
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.home),
            "PYTHONPATH": str(ROOT / "src"),
            "COLUMNS": "120",
            "OTTLA_LISTENERS": f"PLAINTEXT://{self.address}",
            "OTTLA_BOOTSTRAP": self.address,
        }

    def _write_programs(self, folder: Path) -> None:
        folder.mkdir()
        for name, line in PROGRAMS.items():
            text = line.format(python=sys.executable, pip=Path(__file__).with_name("stand_in_for_pip.py"))
            (folder / name).write_text(f"#!/bin/sh\n{text}\n")
            (folder / name).chmod(0o755)

    def follow(self, block: Block) -> None:
        match block.kind, block.language:
            case "background", "sh":
                *first, last = block.at(self.address).strip().splitlines()
                self._run(block, ["bash", "-euo", "pipefail", "-c", "\n".join(first)])
                self._start(last)
            case "output", _:
                assert plain(self._said) == plain(block.at(self.address)), f"{block}: {self._said}"
            case "", "sh":
                self._run(block, ["bash", "-euo", "pipefail", "-c", block.at(self.address)])
            case "", "console":
                for command, expected in block.commands(self.address):
                    said = self._run(block, ["bash", "-euo", "pipefail", "-c", command])
                    assert plain(expected) in ([], plain(said)), f"{block}: {command} printed\n{said}"
            case "", "python":
                self._run_python(block)
            case kind, language:
                raise AssertionError(f"{block}: what is a block of {language or 'text'} marked {kind or 'runnable'}?")

    def start_broker(self) -> None:
        """For a page that takes one for granted."""
        self._start("ottla serve")

    def _start(self, command: str) -> None:
        process = subprocess.Popen(
            ["sh", "-c", f"exec {command}"],
            cwd=self.home,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=(self.home.parent / "log").open("w"),
            text=True,
        )
        self._background.append(process)
        assert process.stdout
        lines: list[str] = []
        while len(lines) < 2 or lines[-1].strip() or not lines[-2].strip().startswith("kcat"):
            line = process.stdout.readline()
            assert line, f"{command} ended: {''.join(lines)}"
            lines.append(line)
        self._said = "".join(lines).replace(str(self.home), "~")
        wait_until(lambda: answers(self.port), f"nobody at {self.address}")

    def _run_python(self, block: Block) -> None:
        text = block.at(self.address)
        is_test = "def test_" in text
        file = self.home / f"{'test_' if is_test else ''}block_{block.line}.py"
        file.write_text(text)
        runner = ["pytest", str(file)] if is_test else ["python", "-c", ASYNC, str(file)]
        self._run(block, runner)

    def _run(self, block: Block, command: list[str]) -> str:
        done = subprocess.run(
            command, cwd=self.home, env=self._environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{block}: {command[-1]}\n{done.stdout}{done.stderr}"
        return (done.stderr + done.stdout).replace(str(self.home), "~")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._background:
            stop_process(process)
