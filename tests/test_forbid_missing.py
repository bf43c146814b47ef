"""`--forbid-missing`: what the whole of CI rests on, that nothing is skipped for want of a library."""

import os
import shutil
import subprocess
import sys

import pytest
from paths import TESTS as HERE

TESTS = {
    "test_whole.py": "import pytest\npytest.importorskip('no_such_library')\ndef test(): pass\n",
    "test_single.py": "import pytest\ndef test(): pytest.importorskip('no_such_library')\n",
    "test_other.py": "import pytest\ndef test(): pytest.skip('elsewhere')\ndef test_more(): pass\n",
    "test_data.py": "import pytest\ndef test(): pytest.skip('no RTE; name its folder: MINIBERT_DATA=...')\n",
}


@pytest.mark.slow
def test_a_missing_library_fails_the_run_and_missing_data_are_listed(tmp_path):
    shutil.copy(HERE / "conftest.py", tmp_path)
    for name, text in TESTS.items():
        (tmp_path / name).write_text(text)
    # In processes, as `make test` has it: what they find has to reach the one that ends the run.
    command = [sys.executable, "-m", "pytest", "-n2", f"-c{os.devnull}", "--rootdir", tmp_path, tmp_path]
    done = subprocess.run([*command, "--forbid-missing"], capture_output=True, text=True)
    assert done.returncode == 1
    *lines, last = done.stdout.splitlines()
    assert " 1 failed, 1 passed, 2 skipped, 1 error in " in last
    assert "Skipped for want of data: 1. Name the folder of the real data in MINIBERT_DATA." in lines
