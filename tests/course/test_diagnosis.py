"""Where a wrong answer is said to be off: each law by values, and all on families of wrong answers."""

import ast
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from course import execute, execute_definitions, notebooks

from minibert import course
from minibert.course.comparing import compare
from minibert.course.diagnosis import MISTAKE, Probe, Question, diagnose, names_in, parts_of
from minibert.course.exercises import exercises
from minibert.course.judging import _cases
from minibert.course.running import Rejected
from minibert.model.ops import Ops

_WRONG_ANSWERS = runpy.run_path(str(Path(__file__).with_name("wrong_answers.py")))
FAMILIES, Wrong = _WRONG_ANSWERS["FAMILIES"], _WRONG_ANSWERS["Wrong"]
LOCALISED = 0.6  # of a family
SEED = 3
RNG = np.random.default_rng(0)
TABLES = [RNG.standard_normal(shape) for shape in ((5, 4), (3, 6), (7, 5))]
DRAWS = RNG.bit_generator.state


@pytest.fixture(autouse=True)
def same_draws():
    """Let the draws of each test be the same in any order of the tests."""
    RNG.bit_generator.state = DRAWS


def told(wrong, arguments=None, probes=()):
    """What is said of a function of the right answers."""
    questions = []
    for number, right in enumerate(TABLES):
        given = {} if arguments is None else arguments(number)
        questions.append(Question({"dx": wrong(right), "db": right[0]}, {"dx": right, "db": right[0]}, given))
    return diagnose(questions, list(probes))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda right: -right, "dx has the wrong sign."),
        (lambda right: right / 3, "dx is 1/3 times what it should be."),
        (lambda right: 0 * right, "dx is zero everywhere."),
        (lambda right: right.T, "dx is transposed."),
        (lambda right: abs(right), "dx has lost its signs."),
        (lambda right: right + 0.25, "dx is off by an added constant, 1/4."),
        (lambda right: right[::-1], "dx has its rows in the opposite order."),
        (lambda right: np.roll(right, 1, 0), "dx is shifted by a row."),
        (lambda right: right**2, "dx is the square of what it should be."),
        (lambda right: right.astype(np.float32), "dx is nearly right, to "),
        (lambda right: right * np.nan, "dx is not finite (nan or inf) everywhere."),
        (
            lambda right: np.where(np.arange(len(right))[:, None] > 0, 7, right),
            "dx is right in the first row only.",
        ),
        (
            lambda right: right + right.mean(1, keepdims=True),
            "dx is off by an added constant of its own in each row",
        ),
        (lambda right: right * (1 + right[1:2] ** 2), "dx is off by a factor of its own in each column."),
        (
            lambda right: np.where(right > 0, 2 * right, right),
            "dx is off only where the right number is positive.",
        ),
    ],
)
def test_each_law_is_named(wrong, sentence):
    text = told(wrong)
    assert sentence in text and "db is right." in text


def test_arguments_and_sizes_are_named():
    def arguments(number):
        return {"b": np.arange(1.0, 1 + TABLES[number].shape[1]), "scale": 2.0 + number}

    assert "dx is x.shape[0] times" in told(lambda y: len(y) * y, lambda n: {"x": np.zeros(len(TABLES[n]))})
    assert "dx is 1/scale times" in told(lambda y: y / (2.0 + _place(y)), arguments)
    assert "dx lacks the term b" in told(lambda y: y - np.arange(1.0, 1 + y.shape[1]), arguments)
    assert "dx lacks the factor b" in told(lambda y: y / np.arange(1.0, 1 + y.shape[1]), arguments)


def _place(right):
    return next(number for number, one in enumerate(TABLES) if one is right)


def test_a_right_answer_is_not_diagnosed_and_exchanged_parts_are_named():
    assert told(lambda right: right) == ""
    questions = [
        Question({"dq": y, "dk": x}, {"dq": x, "dk": y}, {}) for x, y in zip(TABLES, TABLES[1:], strict=False)
    ]
    assert diagnose(questions, []) == "dq is what dk should be. dk is what dq should be."


def test_a_probe_is_named_only_if_everything_becomes_right():
    noise = RNG.standard_normal((9, 9))

    def ask(wrong):
        return lambda: [Question({"dx": wrong(y), "db": y[0]}, {"dx": y, "db": y[0]}, {}) for y in TABLES]

    def spoilt(right):
        return right + noise[: len(right), : right.shape[1]]

    mends, does_not = Probe("where a is 0", ask(lambda y: y)), Probe("where b is 0", ask(spoilt))
    assert "It is right where a is 0." in told(spoilt, probes=[does_not, mends])
    assert "It is right" not in told(spoilt, probes=[does_not])


def test_variants_tell_what_an_error_depends_on():
    questions = [
        Question({"dx": (1 + ("dropout" in variant)) * x}, {"dx": x}, {}, variant)
        for variant in ("", "dropout", "causal", "causal dropout")
        for x in TABLES
    ]
    assert "It is right without “dropout”, and wrong with it." in diagnose(questions, [])


def test_names_of_results_are_read_from_the_docstring():
    assert names_in("Return dq, dk and dv, each (n,D), of sum.") == ["dq", "dk", "dv"]
    assert names_in("Return dx (T,K), dweight (K,N) and dbias (N,); saved has x.") == [
        "dx",
        "dweight",
        "dbias",
    ]
    assert names_in("Return the tokens that the model sees and the right ones.") == []
    assert (
        names_in("Return x + branch(norm(x)) (T,H), and the pair of what norm and branch have saved.") == []
    )
    assert names_in("Return scores (M,V) at some rows, and MaskedLmLogitsSaved(rows, linear).") == []
    assert names_in("Update params, m and v (N,) in place, and return the three.") == ["params", "m", "v"]
    assert names_in(None) == []


def of_answers(pairs, arguments=None):
    """What is said of wrong answers, each with the right one."""
    arguments = arguments or [{} for _ in pairs]
    questions = [
        Question(parts_of(found, []), parts_of(right, []), given)
        for (found, right), given in zip(pairs, arguments, strict=True)
    ]
    return diagnose(questions, [])


def test_a_single_number_is_not_called_an_array():
    pairs = [(float(found), float(right)) for found, right in RNG.standard_normal((6, 2))]
    assert of_answers(pairs) == ""
    assert of_answers([(right**2, right) for _, right in pairs]) == (
        "The answer is the square of what it should be."
    )
    assert of_answers([*pairs, (1.0, 1.0)]) == "The answer is wrong in 6 of 7 questions."


@pytest.mark.parametrize(
    ("pairs", "text"),
    [
        ([([], [1]), ([0], [1])], "In one question, answer[0] is missing; expected 1."),
        ([([0], [1, 2]), ([0], [0, 2])], "In one question, answer[0] is 0; expected 1."),
        ([([[1, 2], [4]], [[1, 2], [3]])], "In one question, answer[1][0] is 4; expected 3."),
        (
            [([0], [0, 1]), ([0], [0, 2])],
            "The answer lacks entries, and has none that is wrong. "
            "In one question, answer[1] is missing; expected 1.",
        ),
        (
            [([0, 3], [0])],
            "has extra entries, and lacks none. In one question, answer[1] is 3; expected nothing",
        ),
        ([("ab", "ba")], "In one question, answer is 'ab'; expected 'ba'."),
        (
            [(np.array([True, False]), np.array([True, True]))],
            "is True too seldom, and never where",
        ),
    ],
)
def test_lists_and_truth_values_are_not_entries_of_arrays(pairs, text):
    told_of_them = of_answers(pairs)
    assert text in told_of_them and (text or not told_of_them)
    assert not re.search("finite|zero|every entry", told_of_them)


def test_entries_are_counted_in_right_answers_too():
    right = RNG.standard_normal((6, 5))
    pairs = [(row + (number % 2) * RNG.standard_normal(5), row) for number, row in enumerate(right)]
    assert of_answers(pairs) == "The answer is wrong in 15 of 30 entries."
    assert of_answers(pairs[1::2]) == "The answer is wrong in every entry."


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (np.negative, "has the wrong sign"),
        (np.zeros_like, "is zero everywhere"),
        (abs, "has lost its signs"),
        (lambda table: table[::-1], "order"),
    ],
)
def test_what_is_so_in_one_question_only_is_not_named(change, says):
    assert says in of_answers([(change(table), table) for table in TABLES])
    others = [(RNG.standard_normal(table.shape), table) for table in TABLES[1:]]
    assert says not in of_answers([(change(TABLES[0]), TABLES[0]), *others])


def test_a_term_is_missing_only_if_it_is_the_same_in_every_question():
    given = [{"x": RNG.standard_normal(table.shape)} for table in TABLES]
    for factors, says in (((-1, -1, -1), "lacks the term x"), ((1, 1, 1), "has an extra term x")):
        pairs = [(t + n * one["x"], t) for t, n, one in zip(TABLES, factors, given, strict=True)]
        assert of_answers(pairs, given) == f"The answer {says}."
    for factors in ((-1, 2, 3), (1, 2, -3), (3, -1, 1)):
        pairs = [(t + n * one["x"], t) for t, n, one in zip(TABLES, factors, given, strict=True)]
        assert "term x" not in of_answers(pairs, given) and "times x" not in of_answers(pairs, given)


@pytest.mark.parametrize("seed", range(8))
def test_where_entries_are_wrong_is_not_told_by_the_tolerance(seed):
    rng = np.random.default_rng(seed)  # of its own: the answer must not depend on the tests before

    def pairs_with(small):
        right = [table * np.where(rng.random(table.shape) < 0.4, small, 1.0) for table in TABLES]
        return [(table * (1 + rng.random(table.shape)), table) for table in right]

    assert of_answers(pairs_with(1e-12)) == "The answer is wrong in every entry."
    pairs = pairs_with(1e-9)  # more than what rounding leaves of a zero
    wrong_where_large = [(np.where(abs(table) > 1e-6, found, table), table) for found, table in pairs]
    assert "is off only where the right number is far from zero" in of_answers(wrong_where_large)


def test_questions_whose_answers_are_not_finite_are_named():
    x = [RNG.standard_normal(size) + 0j for size in (3, 1, 5, 1)]
    given = [{"x": values} for values in x]
    with np.errstate(all="ignore"):
        pairs = [((values * values).sum() / (values.size - 1), (values * values).mean()) for values in x]
    assert of_answers(pairs, given) == "The answer is not finite (nan or inf) where x.shape[0] is 1."
    tables = [np.where(np.arange(len(table))[:, None] > 1, np.nan, table) for table in TABLES]
    given = [{"W": RNG.standard_normal(table.shape)} for table in TABLES]
    text = of_answers(list(zip(tables, TABLES, strict=True)), given)
    assert text == "The answer is not finite (nan or inf) in some places."


def test_an_axis_that_is_not_summed_is_named():
    tables = [*TABLES, TABLES[0][:0]]
    sums = [(table, table.sum(0)) for table in tables]
    assert of_answers(sums) == "The answer would be right if it were summed over axis 0."
    numbers = [(row, row.sum()) for row in TABLES[0]]
    assert of_answers(numbers) == "The answer would be right if it were summed over axis 0."
    assert of_answers([(table, table[0]) for table in TABLES]) == ""


def test_parts_without_names_are_indexed():
    pairs = [((2 * x, (x, y)), (x, (y, x))) for x, y in zip(*RNG.standard_normal((2, 3, 4)), strict=True)]
    assert of_answers(pairs) == (
        "answer[0] is 2 times what it should be. answer[1] has the right entries in another order."
    )


def test_a_part_is_told_by_other_arguments_that_it_would_be_right_for():
    noise = RNG.standard_normal((9, 9))
    wrong = [(right + noise[: len(right), : right.shape[1]], right) for right in TABLES]

    def ask(answers):
        return lambda: [Question({"dx": right}, {"dx": found}, {}) for found, right in answers]

    questions = [Question({"dx": found}, {"dx": right}, {}) for found, right in wrong]
    other = Probe("b were 0", ask([(right, 2 * right) for _, right in wrong]), MISTAKE)
    same = Probe("q and k were exchanged", ask(wrong), MISTAKE)
    assert "It answers as if q and k were exchanged." in diagnose(questions, [other, same])
    assert "as if" not in diagnose(questions, [other])
    assert "as if" not in diagnose(questions[:2], [same])  # too few to be sure


@pytest.mark.parametrize(
    ("wrong", "given", "says"),
    [
        (lambda y, a, b: y - a * b, "ab", "The answer lacks the term a · b."),
        (lambda y, a, b: y + a * a, "ab", "The answer has an extra term a · a."),
        (lambda y, a, b: 2.5 * y * y, "", "The answer is 5/2 times the square of what it should be."),
        (lambda y, a, b: np.where(y > 0.3, a, y), "ab", "The answer is a wherever it is wrong."),
        (lambda y, a, b: 7.0 + 0 * y, "n", "The answer is n everywhere."),
    ],
)
def test_arguments_are_named_in_what_is_wrong(wrong, given, says):
    pairs, arguments = [], []
    for right in TABLES:
        a, b = RNG.standard_normal((2, *right.shape))
        pairs.append((wrong(right, a, b), right))
        arguments.append({name: {"a": a, "b": b, "n": 7.0}[name] for name in given})
    assert says in of_answers(pairs, arguments)


def test_a_row_of_an_argument_is_named():
    pairs = [(table[1], table.sum(0)) for table in TABLES]
    assert "is a single row of dy" in of_answers(pairs, [{"dy": table} for table in TABLES])


def test_a_formula_is_short_of_a_product_of_its_numbers():
    sizes = [(2, 3, 5), (4, 7, 9), (3, 8, 2), (5, 4, 6), (6, 2, 7), (7, 5, 3), (9, 6, 4)]
    given = [dict(zip("LHF", one, strict=True)) for one in sizes]
    right = [100 * L * H * F for L, H, F in sizes]
    short = [one - 4 * L * H**2 for one, (L, H, _) in zip(right, sizes, strict=True)]
    text = of_answers(list(zip(short, right, strict=True)), given)
    assert "The answer is too small by 4 · L · H^2." in text
    by_chance = [one - number**3 - 1 for number, one in enumerate(right, 1)]
    assert "too small" not in of_answers(list(zip(by_chance, right, strict=True)), given)


def test_the_ends_of_an_interval_are_named():
    draws = [np.round(RNG.random((6, 9)), 1) for _ in range(3)]
    right = [RNG.standard_normal((6, 9)) for _ in draws]
    at_ends = [np.isin(draw, (0.2, 0.8)) for draw in draws]
    pairs = [(np.where(at, 5.0, one), one) for at, one in zip(at_ends, right, strict=True)]
    text = of_answers(pairs, [{"draw": draw} for draw in draws])
    assert "is off only where draw is 0.2 or 0.8" in text


def test_what_holds_in_some_questions_is_not_said_of_all():
    pairs = [(0.0, 2.0), (0.0, 3.0), (0.0, 4.0), (5.0, 5.0)]
    assert "zero everywhere in 3 of 4 questions, and right in the others" in of_answers(pairs)
    assert "in 3 of 4" not in of_answers([*pairs[:3], (0.0, 0.0)])


def test_a_law_of_one_wrong_number_says_nothing():
    pairs = [(5.0, 4.0), (2.0, 2.0), (3.0, 3.0), (7.0, 7.0)]
    assert "times what it should be" not in of_answers(pairs)


def test_positive_numbers_have_no_signs_to_lose():
    right = [RNG.random((4, 3)) + 1 for _ in range(3)]
    pairs = [(one * (1 + 1e-10), one) for one in right]
    assert "signs" not in of_answers(pairs)


def test_zeros_are_right_by_any_factor():
    right = [np.where(RNG.random(table.shape) < 0.4, 0.0, table) for table in TABLES]
    pairs = [(one * (1 + RNG.random(one.shape)), one) for one in right]
    assert of_answers(pairs) == "The answer is wrong in every entry that is not zero."


def test_what_rounding_leaves_of_zeros_tells_nothing():
    right = [np.where(RNG.random(table.shape) < 0.4, 1e-17, table) for table in TABLES]
    pairs = [(np.where(one == 1e-17, one, one + RNG.random(one.shape)), one) for one in right]
    assert "far from zero" not in of_answers(pairs)


def test_a_lost_imaginary_part_is_not_called_a_lost_sign():
    right = RNG.random((3, 6)) + 1e-7j * RNG.standard_normal((3, 6))
    assert of_answers([(one.real, one) for one in right]) == "The answer has lost its imaginary part."


def test_a_complex_answer_is_not_right_by_its_real_part():
    assert of_answers([(right + 1j, right) for right in RNG.standard_normal((3, 6))]) != ""


@pytest.mark.filterwarnings("error")
def test_a_constant_in_complex_numbers_is_added():
    right = RNG.random((3, 6)) + 1j * RNG.random((3, 6))
    text = of_answers([(one + (n + 2j), one) for n, one in enumerate(right)])
    assert text == "The answer is off by an added constant, another in each question."


def test_a_saved_part_is_named_as_a_factor():
    questions = []
    for table in TABLES:
        saved = {"the saved n": table * table[:, :1], "the saved r": table[:, :1]}
        questions.append(Question(saved | {"the saved n": table}, saved, {}))
    assert "The saved n lacks the factor the right saved r." in diagnose(questions, [])


def test_as_many_wrong_entries_as_are_not_zero_are_not_the_same_entries():
    is_zero = np.array([1, 1, 1, 0, 0, 0, 0, 0], bool)
    is_wrong = np.array([1, 1, 0, 1, 0, 1, 1, 0], bool)
    rights = np.where(is_zero, 0.0, RNG.standard_normal((3, 8)))
    pairs = [(right + is_wrong * RNG.random(8), right) for right in rights]
    assert of_answers(pairs) == "The answer is wrong in 15 of 24 entries."


def test_words_and_comparisons_tell_which_questions_go_wrong():
    sides = [(1, 4), (5, 2), (3, 9), (8, 8), (2, 7), (6, 1), (1, 3)]
    given = [{"step": one, "warmup": other} for one, other in sides]
    right = RNG.standard_normal(len(sides))
    pairs = [(y + (a < b) * RNG.random(), y) for y, (a, b) in zip(right, sides, strict=True)]
    assert "It is wrong where step < warmup, and right elsewhere." in of_answers(pairs, given)
    kinds = [{"dtype": "BF16" if a < b else "F32"} for a, b in sides]
    assert "It is wrong where dtype is 'BF16', and right elsewhere." in of_answers(pairs, kinds)


def test_one_answer_to_everything_is_named():
    pairs = [((4, [1]), (number, [number])) for number in range(5)]
    assert "It gives the same answer, (4, [1]), to every question." in of_answers(pairs)


def test_counts_and_truth_values_are_too_many_or_too_few():
    few = [({"a": 1}, {"a": 2, "b": 1}), ({"a": 1}, {"a": 1, "b": 3})]
    few = [
        ({(key, key): n for key, n in one.items()}, {(k, k): n for k, n in two.items()}) for one, two in few
    ]
    assert "missing or too small, and none that is too large" in of_answers(few)
    assert "extra or too large, and none that is too small" in of_answers([pair[::-1] for pair in few])
    eye, square = np.eye(4, dtype=bool), np.ones((4, 4), bool)
    assert "is True too often" in of_answers([(square, eye)])
    assert "is the opposite" in of_answers([(~eye, eye)])
    triangle = np.tril(square)
    assert "is transposed" in of_answers([(triangle.T, triangle)])


def test_an_example_is_short_and_never_shows_an_object():
    given = [{"D": 3, "q_mean": 1 / 3}, {"D": 4, "q_mean": 2 / 3}, {"D": 2, "q_mean": 3.0}]
    text = of_answers([(1 / 7, 2 / 7), (1 / 7, 0.5), (0.3, 1.0)], given)
    assert "Asked with D=2, q_mean=3, it says 0.3; expected 1." in text
    assert "object at" not in of_answers([(0.1, 0.2)], [{"x": object(), "n": 3}])


@pytest.mark.parametrize(
    ("found", "right", "says"),
    [
        (np.float32(1 / 3), 1 / 3, "with n=1, it says 0.3333333432674408; expected 0.3333333333333333."),
        ([1.0, 0.1234567], [1.0, 0.1234568], "it says [1.0, 0.1234567]; expected [1.0, 0.1234568]."),
        (float("nan"), float("nan"), ""),
    ],
)
def test_an_example_shows_as_many_digits_as_tell_two_answers_apart(found, right, says):
    text = of_answers([(found, right)], [{"n": 1}])
    assert text.endswith(says) and (says or "Asked" not in text)


IN_PLACE = "x[x.real < 0] = 0\n    return x"
CENTRAL = "exact = (f(*arguments[:place], x + 1e-3 * v, *arguments[place + 1 :]) - f(*arguments)) / 1e-3"


@pytest.mark.parametrize(
    ("wrong", "says", "never_says"),
    [
        (("05.2", "hinge", "return np.where(x.real > 0, x, 0)", IN_PLACE), r"new one\. \(seed", "nearly"),
        (
            ("05.2", "hinge", "np.where(x.real > 0, x, 0)", "(x + abs(x)) / 2"),
            "real part is off by .* Likely: abs forgets",
            "same function",
        ),
        (("05.11", "wrong_gradients", "exact = f(*moved).imag / 1e-30", CENTRAL), "3 numbers", "Likely"),
        (
            ("06.8", "layer_norm", "LayerNormSaved(x_hat, rstd,", "LayerNormSaved(x_hat, rstd[:, 0],"),
            "the result is right, but no backward can use what it saves: operands",
            "no use",
        ),
        (
            ("06.8", "layer_norm", "LayerNormSaved(x_hat, rstd,", "LayerNormSaved(x_hat, 2 * rstd,"),
            "the result is right, but what it saves is wrong: the gradient of x .*rstd is 2 times",
            "no use",
        ),
        (
            (
                "06.8",
                "layer_norm",
                "np.sqrt((centred * centred).mean(1, keepdims=True) + eps)",
                "(np.sqrt((centred * centred).mean(1, keepdims=True)) + eps)",
            ),
            r"the result \(layer_norm large eps\) is off .* Likely: eps belongs under the root",
            "the result is right|every entry",
        ),
        (
            (
                "07.1",
                "pooler",
                "saved_rows, saved_linear, saved_tanh",
                "saved_rows, saved_tanh, saved_linear",
            ),
            "the result is right, but no backward can use what it saves",
            "no use",
        ),
        (
            ("13.5", "other_weights", "p * (1 - rest / rest.min())", "p * (1 + 3 * rest / rest.max())"),
            "^a weight is negative",
            "off by",
        ),
        (
            ("15.2", "full_sentences", "> room", "> room - 2"),
            r"^the answer is a list of \d lists of numbers, of the lengths 8, 9; expected .*Asked with",
            "a number",
        ),
    ],
    ids=lambda each: "-".join(each[:2]) if isinstance(each, tuple) else "",
)
def test_a_verdict_says_nothing_false(wrong, says, never_says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = said_of(Wrong(*wrong, ""))
    assert re.search(says, text) and not re.search(never_says, text), text


def test_truth_values_are_told_by_index():
    right = np.eye(3) > 0
    wrong = right.copy()
    wrong[1, 2] = True
    with pytest.raises(Rejected, match=r"the answer has True at \[1, 2\], where False is expected"):
        compare(wrong, right, 0.0)


def test_two_mistakes_with_the_same_answers_are_both_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lesson = course.begin("05")
    (index,) = (n for n, one in enumerate(lesson.exercises) if "length" in one.functions)
    exercise = lesson.exercises[index]
    mistakes = tuple(each._replace(sentence=f"{each.sentence} Again.") for each in exercise.mistakes)
    lesson.exercises[index] = exercise._replace(mistakes=(*exercise.mistakes, *mistakes))
    namespace = {"np": np}
    execute("def length(x):\n    return np.linalg.norm(x)\n", namespace)
    lesson.check(namespace["length"], seed=SEED)
    told_once = next(each.sentence for each in exercise.mistakes if "linalg.norm" in each.written)
    assert f"Likely: {told_once} Or: {told_once} Again." in lesson.verdicts[-1].text


def test_no_two_sizes_of_a_question_agree():
    for seed in range(40):
        (case,) = _cases("take_rows", np.random.default_rng(seed))
        x, (rows, _) = case.arguments["x"], case.forward(Ops(), case.inputs, {})
        sizes = [len(x), x.shape[1], len(rows)]
        assert len(set(sizes)) == 3, (seed, sizes)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_wrong_answers_are_localised_and_no_mistake_is_named_wrongly(family, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    false, localised = [], 0
    for wrong in FAMILIES[family]:
        text = said_of(wrong)
        assert text, wrong  # it is rejected
        found = bool(wrong.told) and re.search(wrong.told, text, re.S) is not None
        localised += found
        if "Likely:" in text and not (found and wrong.told.startswith("Likely")):
            false.append((wrong, text))
    print(f"{family}: {localised} of {len(FAMILIES[family])} named right or localised")
    assert not false
    assert localised >= LOCALISED * len(FAMILIES[family])


def said_of(wrong):
    """The text of the verdicts on a wrong answer that are not passes."""
    path = next(one for one in notebooks() if one.name.startswith(wrong.exercise[:2]))
    exercise = next(one for one in exercises(path) if one.number == wrong.exercise)
    lesson = course.begin(wrong.exercise[:2])
    namespace = {"__name__": "__main__", "lesson": lesson}
    execute_definitions(path, namespace)
    parts = [ast.get_source_segment(exercise.solution, one) for one in ast.parse(exercise.solution).body]
    for part in parts:
        if part.startswith(f"def {wrong.function}("):
            assert wrong.instead_of in part
            part = part.replace(wrong.instead_of, wrong.written, 1)
        execute(part, namespace)
    for node in ast.parse(exercise.stub).body:
        if isinstance(node, ast.FunctionDef):
            namespace[node.name].__doc__ = ast.get_docstring(node)
    for node in ast.parse(exercise.check).body:
        text = ast.unparse(node)
        if text.startswith("lesson.check("):
            if not re.match(rf"lesson\.check\({wrong.function}\b", text):
                continue
            text = f"{text[:-1]}, seed={SEED})"
        execute(text, namespace)
    return " ".join(one.text for one in lesson.verdicts if one.state != "passed")
