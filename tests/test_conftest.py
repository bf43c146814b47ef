"""What tests/conftest.py does around each test, seen from outside: in a run with a copy of it."""

import os
import shutil
import subprocess
import sys

import pytest
from paths import TESTS as HERE

TESTS = """
import logging

ROOT = logging.getLogger()
BEFORE = [*ROOT.handlers], ROOT.level

def test_that_changes_the_root_logger():
    ROOT.handlers[:] = [logging.NullHandler()]
    ROOT.setLevel(logging.DEBUG)

def test_that_follows():
    assert ([*ROOT.handlers], ROOT.level) == BEFORE
"""


@pytest.mark.slow
def test_the_root_logger_is_the_same_for_each_test(tmp_path):
    shutil.copy(HERE / "conftest.py", tmp_path)
    (tmp_path / "test_logger.py").write_text(TESTS)
    options = [f"-c{os.devnull}", "--rootdir", tmp_path, "-p", "no:logging"]
    command = [sys.executable, "-m", "pytest", *options, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert " 2 passed in " in done.stdout, done.stdout
