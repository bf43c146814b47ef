"""Where the real data lie that are not part of the project, for the tests that want them."""

import os
from pathlib import Path

import pytest
from paths import ROOT

DATA = Path(os.environ.get("MINIBERT_DATA", ROOT.parent / "shared" / "data"))
FIXTURES = ROOT / "tests" / "fixtures" / "tasks"  # sentences of our own in the official layouts


def real_data(name: str) -> Path:
    """A file or folder such as "glue/RTE"; where it is absent the test is skipped."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"no {name} in {DATA}; name the folder of the real data: MINIBERT_DATA=...")
    return path
