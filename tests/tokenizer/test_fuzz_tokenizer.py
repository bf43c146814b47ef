"""The fuzzing of `make fuzz`: a short run, and proof that it would find a fault and make it small."""

import fuzz_tokenizer
import pytest
from fuzz_tokenizer import N_CODES, ROUNDS_OF_ALL_CODES, combinations, every_code_point, run_round, shrink

from minibert.tokenizer import Tokenizer, native

needs_c = pytest.mark.skipif(not native.available(), reason="the C core is not installed")


@pytest.mark.representatives(number=0)
@needs_c
@pytest.mark.parametrize("number", range(6))
def test_c_and_python_agree_on_a_round_of_random_texts(number):
    assert str(run_round(20181011, number)) == "None"


@pytest.mark.thorough
def test_rounds_depend_on_seed_and_number_alone():
    assert run_round(7, 3, core="python") is None
    draws = [fuzz_tokenizer.random_text(fuzz_tokenizer.random.Random("7 3")) for _ in range(2)]
    assert draws[0] == draws[1]


@pytest.mark.thorough
def test_every_code_point_comes_once_in_a_thousand_rounds():
    seen = [text[1:-1] for number in range(ROUNDS_OF_ALL_CODES) for text in every_code_point(number)]
    assert sum(len(text) // 2 + 1 for text in seen) == N_CODES
    assert {character for text in seen for character in text[::2]} == set(map(chr, range(N_CODES)))


def test_every_combination_of_options_is_tried():
    assert len(set(combinations())) == 3 * 2**7


def test_a_text_is_shrunk_to_what_the_difference_needs():
    text = "Vieles steht hier, und ein ß mit e\u0301."
    assert shrink(text, lambda text: "ß" in text and "\u0301" in text) == "ß\u0301"
    assert shrink(b"abc\xffd\xfe", lambda text: len(text) >= 3 and b"\xff" in text) == b"\xffaa"


@needs_c
def test_a_planted_fault_is_found_and_made_small(monkeypatch):
    encode = Tokenizer.encode_batch

    def wrong(self, texts, **arguments):
        batch = encode(self, texts, **arguments)
        if self.core == "c" and "É" in "".join(map(str, texts)):
            batch.ids[-1] += 1
        return batch

    monkeypatch.setattr(Tokenizer, "encode_batch", wrong)
    number = next(n for n, options in enumerate(combinations()) if not options.raw)
    failure = run_round(1, number)
    assert (failure.what, failure.text) == ("pieces with offsets", "É")
    assert "\\xc9" in str(failure) and str(failure).isascii()


@pytest.mark.thorough
@needs_c
def test_command_ends_in_time_with_a_seed_to_repeat(capsys):
    assert fuzz_tokenizer.main(["--strings", "2000", "--seconds", "0", "--jobs", "1", "--seed", "5"]) == 0
    printed = capsys.readouterr().out
    assert "--seed 5" in printed and "2,000 texts under 2 combinations" in printed
