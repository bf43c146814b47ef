"""Misuses of the Python API are told what a person has read; snapshots.py writes it anew."""

import pytest
from snapshots import file_of, of_front


@pytest.mark.filterwarnings("ignore")
def test_misuses_of_the_api_are_told_the_sentences_that_were_read(tmp_path):
    text = of_front("api", tmp_path)
    assert text.count("\n>>> ") >= 40 and "no error" not in text
    assert text.split("\n\n") == file_of("api").read_text(encoding="utf-8").split("\n\n")
