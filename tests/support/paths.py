"""Where things lie, for the tests."""

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
PACKAGE = ROOT / "minibert"
GOLDEN = TESTS / "golden"
FIXTURES = TESTS / "fixtures"
