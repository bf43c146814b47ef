"""Windows and answer positions on real questions, against the two recipes that are in use.

Hugging Face's example tokenises question and paragraph as a pair that overflows into windows, and finds the
answer by offsets. Google's run_squad, and Hugging Face's first code after it, goes by words parted at white
space and then looks for the answer's own pieces among theirs. Both are written down here from their
descriptions, with Hugging Face's `tokenizers` for the pieces.
"""

import functools
import json
import re
import subprocess
import sys

import pytest

tokenizers = pytest.importorskip("tokenizers")

from paths import ROOT  # noqa: E402
from real_data import real_data  # noqa: E402

from minibert.data import squad  # noqa: E402
from minibert.tasks.windows import Windows  # noqa: E402
from minibert.tokenizer import Tokenizer  # noqa: E402

BENCHMARK = ROOT / "benchmarks" / "features.py"
SIZES = [(384, 128), (128, 32)]  # the recipe's, and one that makes many windows of every paragraph


@functools.cache
def vocabulary():
    return Tokenizer.from_pretrained(real_data("vocab/bert-base-uncased"), compat="hf-fast")


def pair_tokenizer():
    vocab = vocabulary().vocab
    ids = {piece: number for number, piece in enumerate(vocab)}
    built = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100)
    )
    built.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    built.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    built.post_processor = tokenizers.processors.BertProcessing(
        ("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"])
    )
    return built


def real_questions(step):
    found = [q for q in squad.read(real_data("squad/dev-v1.1.json"))[::step]]
    assert len(found) > 1000
    return found


def by_offsets(encoding, answer):
    """First and last row of an answer, as Hugging Face's example finds them; 0, 0 where the window ends."""
    begin, end = answer.start, answer.start + len(answer.text)
    rows = [row for row, part in enumerate(encoding.sequence_ids) if part == 1]
    places = {row: encoding.offsets[row] for row in rows}
    if not rows or places[rows[0]][0] > begin or places[rows[-1]][1] < end:
        return 0, 0
    first = max(row for row in rows if places[row][0] <= begin)
    last = min(row for row in rows if places[row][1] >= end)
    return first, last


@pytest.mark.parametrize(("max_length", "stride"), SIZES)
def test_windows_and_answers_are_those_of_overflowing_pairs(max_length, stride):
    questions, theirs = real_questions(10), pair_tokenizer()
    ours = Windows(questions, vocabulary(), max_length, stride=stride)
    checked = n_many = 0
    for number, question in enumerate(questions):
        room = max_length - 3 - len(theirs.encode(question.question, add_special_tokens=False))
        theirs.enable_truncation(max_length, stride=max(0, room - stride), strategy="only_second")
        whole = theirs.encode(question.question, question.context)
        theirs.no_truncation()
        expected = [whole, *whole.overflowing]
        own = [ours[window] for window in range(*ours.bounds[number : number + 2])]
        assert [f.sequences[0].input_ids.tolist() for f in own] == [e.ids for e in expected]
        assert [f.sequences[0].token_type_ids.tolist() for f in own] == [e.type_ids for e in expected]
        assert [f.label for f in own] == [by_offsets(e, question.answers[0]) for e in expected]
        checked += len(own)
        n_many += len(own) > 1
    assert checked > len(questions) and n_many > 10


def google_positions(question, pieces_of):
    """All pieces of a paragraph, and the first and last of its answer, by the steps of run_squad."""
    words = [match.span() for match in re.finditer("[^ \t\r\n\u202f]+", question.context)]
    pieces, first_piece = [], []
    for begin, end in words:
        first_piece.append(len(pieces))
        pieces += pieces_of(question.context[begin:end])
    first_piece.append(len(pieces))
    answer = question.answers[0]
    touched = [
        number
        for number, (begin, end) in enumerate(words)
        if begin < answer.start + len(answer.text) and end > answer.start
    ]
    first, last = first_piece[touched[0]], first_piece[touched[-1] + 1] - 1
    wanted = pieces_of(answer.text)
    for start in range(first, last + 1):
        for end in range(last, start - 1, -1):
            if pieces[start : end + 1] == wanted:
                return pieces, start, end
    return pieces, first, last


def test_answers_are_those_of_run_squad_or_lie_within_them():
    questions, theirs = real_questions(2), pair_tokenizer()

    @functools.cache
    def pieces_of(text):
        return theirs.encode(text, add_special_tokens=False).ids

    ours = Windows(questions, vocabulary(), 100_000)  # one window each: the whole paragraph
    narrower, elsewhere = [], []
    for number, question in enumerate(questions):
        feature, row = ours[number], ours.first_row(number)
        pieces, first, last = google_positions(question, pieces_of)
        assert feature.sequences[0].input_ids[row:-1].tolist() == pieces
        own = feature.label[0] - row, feature.label[1] - row
        if own != (first, last):
            (narrower if first <= own[0] <= own[1] <= last else elsewhere).append(question.id)
    # 14 answers end inside a piece, so that no pieces read like them: run_squad then takes whole words.
    assert (len(narrower), len(elsewhere)) == (14, 0)


def test_benchmark_compares_features_before_it_times_them():
    pytest.importorskip("transformers")
    real_data("squad/dev-v1.1.json")
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--quick", "--json"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["speed"]["questions"] == {"minibert": 1000, "hf example": 1000, "by words": 100}
    same = found["speed"]["agreement"]
    assert same["questions"] == same["pieces"] == 100 and same["answers"] > 95
    assert found["memory"]["questions"] == 5000 and 0 < found["memory"]["peak_mb"] < 200
