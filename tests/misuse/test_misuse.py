"""What misuses are told, held against the sentences that a person has read."""

import re

import pytest
from snapshots import FRONTS, file_of, of_front


@pytest.mark.parametrize("front", FRONTS)
def test_misuses_get_the_sentences_that_were_read(front, tmp_path):
    """`make sentences` writes them anew."""
    assert of_front(front, tmp_path).split("\n\n") == file_of(front).read_text(encoding="utf-8").split("\n\n")


def test_command_line_has_no_marks_of_python():
    """Each misuse gets one line, which names flags, and the status of bad input."""
    head, *blocks = file_of("command_line").read_text(encoding="utf-8").rstrip().split("\n\n")
    assert len(blocks) >= 60
    for block in blocks:
        command, *sentences, status = block.split("\n")
        if status == "exit status 0":  # a warning, or help
            continue
        assert status == "exit status 2", command
        (sentence,) = sentences[-1:]
        assert sentence.startswith("minibert"), command
        assert not re.search(r"`|\$\w|\b[a-z]+_[a-z_]+='", sentence), sentence
