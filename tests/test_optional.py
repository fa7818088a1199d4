"""Tests that each reason for a skipped test has a remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.optional import remedy, summary

TESTS = Path(__file__).parent
REASON = re.compile(r"""(?:importorskip\(|pytest\.skip\(f?|reason=f?)["']([^"']+)["']""")
REASONS = sorted({reason for path in TESTS.rglob("*.py") for reason in REASON.findall(path.read_text())})


def test_reasons_are_found_in_the_tests() -> None:
    assert {"no GPU", "docker is not installed", "envpool"} <= set(REASONS)


@pytest.mark.parametrize("reason", [reason for reason in REASONS if not reason.startswith("{")])
def test_each_reason_has_a_remedy(reason: str) -> None:
    assert remedy(reason) is not None


def test_summary_counts_tests_by_what_they_need() -> None:
    lines = summary(
        ["Skipped: no GPU", "Skipped: no GPU", "Skipped: could not import 'mpe2': No module", "Skipped: else"]
    )
    assert lines[0] == "   2  a machine with a GPU and torch's build for it"
    assert lines[1].endswith(".[mpe]'")
    assert lines[2] == "   1  else"


def test_a_test_that_only_root_can_run_is_to_be_run_as_root() -> None:
    assert remedy("only root can become another user; and this is one") == "run the tests as root"
    assert remedy("root may write anywhere") == "run the tests as another user than root"
