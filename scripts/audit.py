"""Known vulnerabilities of what .venv holds, by pip-audit. What was not looked up is told, never counted clean.

Exit code 1 where there are any; 0 where there are none, and also where no advisory service answers: that is said.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

VENV = Path(".venv")
TOOL = VENV / "audit"  # an environment of its own: what is audited stays as it is tested
UNKNOWN = "NOT AUDITED: {why}. Nothing is known of any package."


def tool() -> Path | None:
    """pip-audit's program, installed if it has to be; None where that cannot be done."""
    program = TOOL / "bin" / "pip-audit"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", str(TOOL)], check=True)
        installing = [str(TOOL / "bin" / "pip"), "install", "-q", "pip-audit>=2.7,<3"]
        if subprocess.run(installing, capture_output=True, check=False).returncode != 0:
            return None
    return program


def report(found: list[dict]) -> int:
    """Prints what is known of the packages; the exit code."""
    bad = [one for one in found if one.get("vulns")]
    skipped = [one for one in found if "skip_reason" in one]
    for one in bad:
        for known in one["vulns"]:
            fixed = ", ".join(known.get("fix_versions", ())) or "no version yet"
            print(f"VULNERABLE {one['name']} {one['version']}: {known['id']}, mended in {fixed}")
    if skipped:
        print(f"Not looked up, so not known to be clean: {', '.join(one['name'] for one in skipped)}.")
        print(f"Why the first was not: {skipped[0]['skip_reason']}.")
    if len(skipped) == len(found):
        print(UNKNOWN.format(why="the advisory service has none of these packages (a mirror?)"))
    clean = len(found) - len(skipped) - len(bad)
    print(f"{clean} without a known vulnerability, {len(bad)} with one, {len(skipped)} not looked up.")
    return 1 if bad else 0


def main() -> int:
    program = tool()
    if program is None:
        print(UNKNOWN.format(why="pip-audit could not be installed (offline?)"))
        return 0
    (packages,) = VENV.glob("lib/python3*/site-packages")
    asking = [str(program), "--path", str(packages), "-f", "json", "--progress-spinner", "off", "--timeout", "10"]
    try:
        asked = subprocess.run(asking, capture_output=True, text=True, check=False, timeout=300)
        return report(json.loads(asked.stdout)["dependencies"])
    except (ValueError, KeyError, subprocess.TimeoutExpired):
        print(UNKNOWN.format(why="the advisory service gave no answer (offline?)"))
        return 0


if __name__ == "__main__":
    sys.exit(main())
