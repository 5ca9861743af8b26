"""Holds what is installed against the known vulnerabilities: ``python -m tests.audit``, or ``make audit``.

pip-audit asks a service, PyPI's or OSV's. It takes "no vulnerability" and "nobody could be asked" for the same success; here they
are distinguished. A known vulnerability fails. What could not be learned is printed, and fails only with ``--strict``, for
machines that must reach a service.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

SERVICES = ("pypi", "osv")
SECONDS = 300
OWN = "pulse-stream"


@dataclass
class Learned:
    """What is known of packages: those without a fault, the faults, and why of others nothing is known."""

    fine: set[str] = field(default_factory=set)
    faults: dict[str, list[str]] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)

    def take(self, report: dict[str, Any]) -> None:
        """Add what a report of pip-audit's (JSON) says; what one service does not know another may."""
        for one in report["dependencies"]:
            name = one["name"]
            if name == OWN:
                continue
            if "skip_reason" in one:
                if name not in self.fine and name not in self.faults:
                    self.unknown[name] = one["skip_reason"]
                continue
            self.unknown.pop(name, None)
            if one["vulns"]:
                self.faults[name] = [_fault(one, vulnerability) for vulnerability in one["vulns"]]
            else:
                self.fine.add(name)

    def verdict(self, troubles: Iterable[str] = (), *, strict: bool = False) -> tuple[int, list[str]]:
        """The exit code, and what to say."""
        lines = [line for name in sorted(self.faults) for line in self.faults[name]]
        if self.fine or self.faults:
            faults = sum(map(len, self.faults.values()))
            lines.append(
                f"audit: {len(self.fine) + len(self.faults)} packages looked up, {faults} known vulnerabilities"
            )
        if self.unknown or not self.fine | self.faults.keys():
            some = ", ".join(sorted(self.unknown)[:5]) + (" …" if len(self.unknown) > 5 else "")
            lines.append(
                f"audit: NOT AUDITED: of {len(self.unknown) or 'all'} packages nothing could be learned"
                f"{f' ({some})' if some else ''}; run it where pypi.org or api.osv.dev can be reached"
            )
            lines += [f"audit: {one}" for one in troubles]
        failed = bool(self.faults) or (strict and (bool(self.unknown) or not self.fine))
        return int(failed), lines


def _fault(package: dict[str, Any], vulnerability: dict[str, Any]) -> str:
    fixed = ", ".join(vulnerability.get("fix_versions") or ()) or "no version yet"
    return f"audit: {package['name']} {package['version']}: {vulnerability['id']}; mended in {fixed}"


def asked(service: str) -> dict[str, Any]:
    """What a service says of all that is installed beside this interpreter."""
    command = [
        sys.executable,
        "-m",
        "pip_audit",
        "--format",
        "json",
        "--progress-spinner",
        "off",
        "--skip-editable",
    ]
    command += ["--vulnerability-service", service, "--timeout", "10"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["pip-audit printed nothing"])[-1]
        raise OSError(f"{service}: {last[:300]}") from None
    return report


def main(strict: bool) -> int:
    """Ask one service after the other, as long as there are packages of which nothing is known."""
    learned, troubles = Learned(), []
    for service in SERVICES:
        try:
            learned.take(asked(service))
        except (OSError, subprocess.TimeoutExpired) as e:
            troubles.append(str(e))
        if learned.fine and not learned.unknown:
            break
    code, lines = learned.verdict(troubles, strict=strict)
    sys.stdout.write("\n".join([*lines, ""]))
    return code


if __name__ == "__main__":
    sys.exit(main("--strict" in sys.argv[1:]))
