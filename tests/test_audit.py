"""How `make audit` judges the output of bandit and pip-audit."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
SAFE = {"name": "a", "version": "1", "vulns": []}
UNKNOWN = {"name": "b", "skip_reason": "Dependency not found on PyPI and could not be audited: b (1)"}
HOLE = {"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["2"], "description": "…"}
HOLED = {"name": "c", "version": "1", "vulns": [HOLE]}


@pytest.fixture(scope="module")
def audit() -> Any:
    spec = importlib.util.spec_from_file_location("audit", ROOT / "scripts" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ended(code: int, out: str = "", error: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], code, out, error)


def report(*packages: dict[str, Any]) -> str:
    return json.dumps({"dependencies": packages, "fixes": []})


@pytest.mark.parametrize(
    ("done", "fine", "said"),
    [
        (ended(0, report(SAFE, SAFE)), True, "audit: no known vulnerabilities in 2 packages"),
        (ended(0, report(SAFE, UNKNOWN)), True, "audit: no known vulnerabilities in 1 packages, 1 unknown"),
        (ended(1, report(SAFE, HOLED)), False, "audit: packages with known vulnerabilities\nc 1: PYSEC-1, fixed in 2"),
        (ended(0, report(UNKNOWN, UNKNOWN)), True, None),
        (ended(1, "", "Traceback…\nrequests.exceptions.ConnectionError: …"), True, None),
        (ended(1, "", "No module named pip_audit"), False, "audit: pip-audit failed\nNo module named pip_audit"),
    ],
)
def test_packages(audit: Any, done: subprocess.CompletedProcess[str], fine: bool, said: str | None) -> None:
    """A mirror without advisories knows no package at all: that must not count as "no vulnerabilities"."""
    assert audit.look_at_packages(done) == (fine, said or audit.UNREACHED)


def test_an_advisory_that_does_not_concern_us_has_a_reason(audit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(audit.IGNORED, "CVE-1", "the function is not called")
    assert audit.look_at_packages(ended(1, report(HOLED))).fine


def test_code(audit: Any) -> None:
    assert audit.look_at_code(ended(0, "", "[tester] WARNING nosec encountered")).fine
    assert audit.look_at_code(ended(1, ">> Issue: [B602]")) == (False, ">> Issue: [B602]")
    assert audit.look_at_code(ended(1, "", "No module named bandit")) == (False, "No module named bandit")


def test_every_exemption_has_a_reason() -> None:
    """`# nosec B102 # why`: which check, and why it is wrong here."""
    bare = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for folder in ("src", "scripts", "native")
        for path in (ROOT / folder).rglob("*.py")
        if path != ROOT / "scripts" / "audit.py"
        for line in path.read_text().splitlines()
        if "# nosec" in line
        if not (line.partition("# nosec B")[2].partition(" # ")[2].strip())
    ]
    assert not bare
