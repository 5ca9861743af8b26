"""The audit tells three things apart: no vulnerability is known, one is, and nobody could be asked."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from tests import audit
from tests.audit import Learned

FINE = {"name": "numpy", "version": "2.3", "vulns": []}
BAD = {
    "name": "old",
    "version": "1.0",
    "vulns": [{"id": "PYSEC-2024-1", "fix_versions": ["1.1"]}, {"id": "CVE-1"}],
}
UNKNOWN = {"name": "old", "skip_reason": "Dependency not found on PyPI and could not be audited: old (1.0)"}


def learned(*packages: dict[str, Any]) -> Learned:
    found = Learned()
    for one in packages:
        found.take({"dependencies": [one]})
    return found


def test_no_known_vulnerability_is_a_success() -> None:
    assert learned(FINE).verdict(strict=True) == (0, ["audit: 1 packages looked up, 0 known vulnerabilities"])


def test_a_known_vulnerability_fails_and_says_where_it_is_mended() -> None:
    code, lines = learned(FINE, BAD).verdict()
    assert code == 1
    assert lines == [
        "audit: old 1.0: PYSEC-2024-1; mended in 1.1",
        "audit: old 1.0: CVE-1; mended in no version yet",
        "audit: 2 packages looked up, 2 known vulnerabilities",
    ]


def test_what_could_not_be_learned_is_no_success_that_looks_like_one() -> None:
    code, lines = learned(UNKNOWN).verdict(["osv: no route"])
    assert code == 0
    assert lines[0].startswith("audit: NOT AUDITED: of 1 packages nothing could be learned (old)")
    assert lines[1] == "audit: osv: no route"
    assert learned(UNKNOWN).verdict(strict=True)[0] == 1
    assert Learned().verdict()[1][0].startswith("audit: NOT AUDITED: of all packages")
    assert Learned().verdict(strict=True)[0] == 1


@pytest.mark.parametrize("order", [(UNKNOWN, BAD), (BAD, UNKNOWN)])
def test_what_one_service_does_not_know_another_may(order: tuple[dict[str, Any], ...]) -> None:
    assert learned(*order).verdict()[0] == 1
    assert not learned(*order).unknown


def test_our_own_package_is_not_looked_up() -> None:
    assert not learned({"name": "pulse-stream", "skip_reason": "distribution marked as editable"}).unknown


def test_services_are_asked_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(command: list[str], **_: Any) -> Any:
        return subprocess.CompletedProcess(command, 1, "", "Traceback\nConnectionError: no route\n")

    monkeypatch.setattr(subprocess, "run", none)
    assert audit.main(strict=False) == 0
    reported = capsys.readouterr().out
    assert "NOT AUDITED" in reported
    assert "pypi: ConnectionError: no route" in reported
    assert "osv: ConnectionError: no route" in reported
    assert audit.main(strict=True) == 1
