"""Security checks: `bandit` reads the code, `pip-audit` looks up known vulnerabilities of packages.

    0   nothing found, or the advisories cannot be reached, which is printed in one line
    1   something was found, or a program failed

pip-audit asks PyPI about every installed package. A mirror without advisories answers that it does not know the
packages, and pip-audit still succeeds: so only packages that were found there count as audited.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BANDIT = ["-m", "bandit", "--configfile", "pyproject.toml", "--recursive", "src", "scripts", "native"]
PIP_AUDIT = ["-m", "pip_audit", "--skip-editable", "--progress-spinner", "off", "--format", "json", "--timeout", "15"]
UNREACHED = "audit: the advisory database cannot be reached: no package was checked"
# Advisories that do not concern us: the id, and why.
IGNORED: dict[str, str] = {}


class Verdict(NamedTuple):
    fine: bool
    text: str


def main() -> int:
    verdicts = [look_at_code(run(BANDIT)), look_at_packages(run(PIP_AUDIT))]
    for verdict in verdicts:
        print(verdict.text)
    return 0 if all(verdict.fine for verdict in verdicts) else 1


def run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def look_at_code(done: subprocess.CompletedProcess[str]) -> Verdict:
    """bandit warns about exempt lines on standard error: shown only when it fails."""
    if done.returncode:
        return Verdict(False, f"{done.stdout}{'' if done.stdout else done.stderr}".strip())
    return Verdict(True, "audit: bandit found nothing")


def look_at_packages(done: subprocess.CompletedProcess[str]) -> Verdict:
    try:
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        if "ConnectionError" in done.stderr or "Timeout" in done.stderr or "HTTPError" in done.stderr:
            return Verdict(True, UNREACHED)
        return Verdict(False, f"audit: pip-audit failed\n{done.stderr.strip()}")
    known = [package for package in packages if "skip_reason" not in package]
    if not known:
        return Verdict(True, UNREACHED)
    holes = [
        f"{package['name']} {package['version']}: {hole['id']}, fixed in {', '.join(hole['fix_versions']) or 'none'}"
        for package in known
        for hole in package["vulns"]
        if not IGNORED.keys() & {hole["id"], *hole.get("aliases", ())}
    ]
    if holes:
        return Verdict(False, "audit: packages with known vulnerabilities\n" + "\n".join(holes))
    left = len(packages) - len(known)
    return Verdict(
        True, f"audit: no known vulnerabilities in {len(known)} packages" + (f", {left} unknown" if left else "")
    )


if __name__ == "__main__":
    sys.exit(main())
