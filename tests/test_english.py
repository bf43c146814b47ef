"""The model in the package itself: its files, its size, and what it answers."""

import re
import subprocess
import sys

import pytest
from paths import PACKAGE, ROOT

import minibert
from minibert import Tokenizer, hub
from minibert.base.bundled_models import DEFAULT, DIGESTS_FILE
from minibert.model.params import initialise
from minibert.pretraining.predict import evaluate_words

FOLDER = PACKAGE / "pretrained" / DEFAULT
LARGEST = 8_000_000  # bytes
LETTER = str(ROOT / "docs" / "examples" / "letter.txt")  # which was written for the project
# What needs no trained weights is tested in tests/base/test_bundled_models.py.


@pytest.fixture(scope="module")
def english():
    return minibert.load("english")


def test_its_files_have_their_digests_and_are_small_enough():
    command = ["sha256sum", "--check", "--strict", "--quiet", DIGESTS_FILE]
    assert subprocess.run(command, cwd=FOLDER, capture_output=True).returncode == 0
    listed = {line.partition("  ")[2] for line in (FOLDER / DIGESTS_FILE).read_text("utf-8").splitlines()}
    sizes = {path.name: path.stat().st_size for path in FOLDER.iterdir()}
    assert sizes.keys() == listed | {DIGESTS_FILE}
    assert sum(sizes.values()) <= LARGEST


def test_a_gap_gets_five_guesses_that_are_whole_words(english):
    [guesses] = english.fill_mask("She looked at [MASK] own hands.")
    assert len({guess.token for guess in guesses}) == 5
    assert all(guess.token.isalpha() for guess in guesses)
    assert sum(guess.probability for guess in guesses) > 100 * 5 / english.config.V


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("She was born in New [MASK] City.", "york"),  # this and the next four are on the landing page
        ("She looked at [MASK] own hands.", "her"),
        ("He looked at [MASK] own hands.", "his"),
        ("They [MASK] born in London.", "were"),
        ("She [MASK] born in London.", "was"),
        ("The book was [MASK] in 1998.", "published"),
    ],
)
def test_a_phrase_is_completed_by_its_likeliest_word(text, expected, english):
    [[guess]] = english.fill_mask(text, top=1)
    assert guess.token == expected


def test_guesses_that_getting_started_shows_are_its_own(english):
    page = (ROOT / "docs" / "getting-started.md").read_text("utf-8")
    shown = re.findall(r"^ *([\d.]+)%  (\S+)$", page, re.MULTILINE)
    [guesses] = english.fill_mask("She was born in New [MASK] City.")
    assert [piece for _, piece in shown] == [guess.token for guess in guesses]
    differences = [
        float(percent) - 100 * guess.probability for (percent, _), guess in zip(shown, guesses, strict=True)
    ]
    assert max(map(abs, differences)) < 0.02


def test_text_that_it_never_saw_costs_far_less_than_it_costs_untrained(english, tmp_path):
    hub.save_hf(tmp_path, english.config, initialise(english.config, seed=0))
    Tokenizer.from_pretrained("english").save_pretrained(tmp_path, english.config.P)
    trained, untrained = (evaluate_words(name, (LETTER,)) for name in ("english", tmp_path))
    assert trained.words == untrained.words > 20
    assert trained.nats_per_byte < 0.6 * untrained.nats_per_byte


def test_a_command_without_a_model_answers_by_it():
    command = [sys.executable, "-m", "minibert", "fill-mask", "She was born in New [MASK] City."]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 5
    assert "the model is english" in done.stderr
