"""Limits that a docstring, an error or a comment states: what happens at each one, and right beside it."""

from types import SimpleNamespace

import numpy as np
import pytest

from minibert.base import model_names
from minibert.base.errors import InputError
from minibert.base.options import COUNT, FINITE, MOST, NOT_NEGATIVE, POSITIVE, RATE, REAL, SHARE, WHOLE
from minibert.data import corpus
from minibert.data.glue import TextExample
from minibert.model.targets import Targets
from minibert.pretraining import budget, preparation, run
from minibert.pretraining.recipes import parse_lengths
from minibert.reports import doctor
from minibert.reports.doctor import Record
from minibert.reports.results import _counts, metrics_text, thresholds_remark
from minibert.tasks import registry
from minibert.tasks.words import word_spans
from minibert.tokenizer import SPECIAL_TOKENS, Tokenizer, extending
from minibert.tokenizer.counting import count_files
from minibert.tokenizer.learner import first_pieces
from minibert.tokenizer.normalize import BasicTokenizer

TINY, INFINITE = 1e-300, float("inf")


@pytest.mark.parametrize(
    ("rules", "accepted", "refused"),
    [
        (COUNT, (0, 1), (-1, 0.5)),
        (WHOLE, (1, MOST), (0, MOST + 1, 1.5)),
        (POSITIVE, (TINY, 1e300), (0, -TINY, INFINITE)),
        (NOT_NEGATIVE, (0, INFINITE), (-TINY,)),
        (FINITE, (0, 1e300), (-TINY, INFINITE)),
        (REAL, (0, -1.5), ("1", None)),
        (RATE, (0, 1 - 1e-12), (-TINY, 1)),
        (SHARE, (TINY, 1 - 1e-12), (0, 1)),
    ],
)
def test_each_rule_of_an_option_ends_where_its_words_say(rules, accepted, refused):
    def holds(value):
        return all(test(value) for _, test in rules)

    assert [holds(value) for value in (*accepted, *refused)] == [True] * len(accepted) + [False] * len(
        refused
    )


# What is listed in full, and of what only the first are


def test_of_up_to_twelve_checkpoints_all_are_listed(tmp_path):
    steps = tmp_path / "run" / "checkpoints"
    steps.mkdir(parents=True)

    def choice(count):
        for step in range(1, count + 1):
            (steps / f"step-{step:08}.safetensors").touch()
        with pytest.raises(InputError) as error:
            model_names.locate(f"{tmp_path / 'run'}@999")
        return str(error.value).partition("choose from ")[2].partition(" (")[0].split(", ")

    assert choice(12) == [str(step) for step in range(1, 13)]
    assert choice(13) == [*"123456", "…", *"89", "10", "11", "12", "13"]


@pytest.mark.parametrize(("count", "more"), [(3, ""), (4, "; and 1 more"), (1003, "; and 1,000 more")])
def test_three_words_that_cannot_be_added_are_named(count, more):
    tokenizer = Tokenizer([*SPECIAL_TOKENS, "a"])
    words = [(f"line {number}", f"b{number} c") for number in range(count)]
    with pytest.raises(InputError) as error:
        extending.checked_words(tokenizer, words, ())
    named, _, advice = str(error.value).partition("; give one word")
    assert named.count("is not a word") == 3 and named.endswith(f"'c'{more}") and advice


def test_three_metrics_fit_in_a_line_and_six_classes():
    scores = {f"f1_{name}": 0.5 for name in "abcd"}
    assert metrics_text(scores).count("50.00") == 3
    for count, more in ((6, ""), (7, ", and 1 more class"), (8, ", and 2 more classes")):
        names = "abcdefgh"[:count]
        assert _counts({"classes": dict.fromkeys(names, 2)}).endswith(f"'f' 2{more}")
        said = thresholds_remark({"thresholds": dict.fromkeys(names, 0.25)})
        assert said.endswith(f"'f' from 0.250{more}.")


@pytest.mark.parametrize(("count", "more"), [(5, ""), (6, "; and 1 more")])
def test_five_classes_with_too_few_examples_are_named(count, more):
    names = "abcdefg"[:count]
    examples = [TextExample(str(number), "a", None, name) for number, name in enumerate(names)]
    with pytest.warns(UserWarning, match="too few examples") as warned:
        registry.create("classify").warn_rare(examples, examples, tuple(names))
    said = str(warned[0].message)
    assert said.count(" in train") == 5 and f"{count} of {count} classes have" in said
    assert f"1 in dev{more}. The metrics" in said


# What is refused


def test_arguments_are_refused_beyond_the_limit_that_the_error_names():
    with pytest.raises(InputError, match="unused=1000001 is more than 1,000,000"):
        first_pieces(1_000_001, ())
    for held_out in (0, 2, 2**31):
        assert not count_files([], BasicTokenizer(), held_out=held_out).held_out.counts.size
    for held_out in (-1, 1, 2**31 + 1):
        with pytest.raises(InputError, match=r"give 2 to 2\*\*31, or 0"):
            count_files([], BasicTokenizer(), held_out=held_out)


def test_a_schedule_has_up_to_100_lengths_of_5_or_more():
    assert len(parse_lengths(",".join(["8:0.01"] * 100))) == 100
    with pytest.raises(InputError, match="up to 100 with shares"):
        parse_lengths(",".join(["8:0.01"] * 101))
    assert parse_lengths("5") == [(5, 1.0)]
    for text, said in (
        ("4", "too short; give at least 5"),
        ("8:0,16:1", "not a schedule"),
        ("8:.5", "sum to"),
    ):
        with pytest.raises(InputError, match=said):
            parse_lengths(text)


def test_labels_have_to_be_finer_than_a_hundredth_of_their_spread():
    rounding = float(np.spacing(np.float32(1e6)))
    Targets.of([1e6, 1e6 - 2 * 101 * rounding])
    with pytest.raises(InputError, match=f"rounded to {rounding:g} in float32"):
        Targets.of([1e6, 1e6 - 2 * 99 * rounding])


# What is warned of and what a report mentions


@pytest.mark.parametrize(("ideographs", "warns"), [(5, False), (6, True)])
def test_lone_ideographs_are_warned_of_above_five_in_a_hundred(ideographs, warns, recwarn):
    tokenizer = Tokenizer([*SPECIAL_TOKENS, "a", "中"])
    letter, ideograph = tokenizer.ids["a"], tokenizer.ids["中"]
    tokens = np.array([ideograph] * ideographs + [letter] * (100 - ideographs))
    preparation.warn_of_lone_ideographs(SimpleNamespace(tokens=tokens), tokenizer)
    assert [str(one.message)[:2] for one in recwarn] == ["6%"] * warns


def test_a_line_is_repeated_if_it_was_there_before():
    documents = [np.array([1, 2, 3, 1, 2]), np.array([3, 4])]
    shards = SimpleNamespace(
        n_documents=2, document=lambda index: (documents[index], np.array([[2, 3, 5], [2]][index]))
    )
    assert preparation.repeated_share(shards) == (4, 2 / 7)


@pytest.mark.parametrize(("minutes", "said"), [(10, "18 s"), (12, "20 s"), (60, "20 s")])
def test_a_rehearsal_takes_three_hundredths_of_the_time_and_at_most_20_seconds(minutes, said, monkeypatch):
    monkeypatch.setattr(budget, "seconds_per_step", lambda *about: about[3])
    options = SimpleNamespace(minutes=minutes, lengths=[(16, 0.5), (32, 0.5)])
    ops = SimpleNamespace(runtime=SimpleNamespace(world_size=1))
    task = SimpleNamespace(options=options, ops=ops, seconds_per_step={})
    told = []
    seconds = budget._step_seconds(task, None, [16, 32, 16], told.append)
    assert seconds == [min(20, 1.8 * minutes) / 2] * 3
    assert told == [f"Measuring the speed at lengths of 16, 32, for some {said}."]


@pytest.mark.parametrize(("steps", "became"), [(110, None), (111, "faster"), (90, None), (89, "slower")])
def test_the_report_mentions_a_tenth_more_or_fewer_steps_than_planned(steps, became):
    report = {
        "held_out": {}, "folder": "a", "tokens": 5, "training_seconds": 1.0, "steps": steps, "seconds": 60.0,
        "planned_steps": 100, "trained_length": 8, "examples": [], "page": "",
    }  # fmt: skip
    lines = [line for line in run.report_text(report).splitlines() if "had been planned" in line]
    assert lines == (
        [f"The machine became {became} on the way: 100 steps had been planned."] if became else []
    )


@pytest.mark.parametrize(("width", "layout"), [(120, "prose"), (121, "sentences")])
def test_lines_of_up_to_120_characters_are_those_of_a_page(width, layout):
    assert corpus.sniff(f"{'a' * width}\n" * 4) == layout


@pytest.mark.parametrize(("characters", "documents"), [(399, 1), (400, 2)])
def test_prose_before_a_gap_is_a_heading_below_400_characters(tmp_path, characters, documents):
    path = tmp_path / "a.txt"
    text = "a" * (characters - 2)  # with its line end, and one more character
    path.write_text(f"{text}b\n\n\nc d.\n")
    read = list(corpus.SentenceStream([path], layout="prose"))
    assert read.count(None) == documents - 1 + (read[-1] is None)


def test_three_letters_after_an_apostrophe_are_one_word_with_it():
    tokenizer = Tokenizer([*SPECIAL_TOKENS, "a", "'", "##b", *"bcd", "bcd", "bcde"])
    for text, words in (("a'bcd", ["a", "'bcd"]), ("a'bcde", ["a", "'", "bcde"])):
        assert [text[begin:end] for begin, end in word_spans(tokenizer, text)] == words


# The rules of the doctor


def judged(rule, losses, tmp_path=None, **facts):
    """What a rule says of a run that is like one, but for what it is given."""
    plain = Record(tmp_path, SimpleNamespace(**facts.pop("options", {})), [], facts.pop("report", {}))
    about = {
        "losses": np.array(losses, float),
        "noise": 0.0,
        "rates": (1.0, 1.0),
        "has_learnt": False,
    } | facts
    about["pretrains"] = facts.get("pretrains", True)

    class Run(Record):
        losses = about["losses"]
        noise = about["noise"]
        rates = about["rates"]
        has_learnt = about["has_learnt"]
        pretrains = about["pretrains"]
        unigram = about.get("unigram")
        usual = about.get("usual")

        def values(self, name):
            return np.ones(len(self.losses))

    return rule(Run(plain.folder, plain.options, plain.lines, plain.report))


def falling(first, lowest, last):
    """Losses of 100 steps: two at first, most at the lowest, and the last tenth."""
    return [first] * 2 + [lowest] * 88 + [last] * 10


@pytest.mark.parametrize(
    ("rule", "quiet", "found"),
    [
        (doctor.duplicated_lines, {"lines": 999, "repeated": 1.0}, None),
        (doctor.duplicated_lines, {"lines": 1000, "repeated": 0.0499}, {"lines": 1000, "repeated": 0.05}),
        (doctor.foreign_vocabulary, {"unknown": 0.0499}, {"unknown": 0.05}),
        (
            doctor.foreign_vocabulary,
            {"vocabulary": 1000, "pieces_a_word": 2.99},
            {"vocabulary": 1000, "pieces_a_word": 3},
        ),
        (doctor.foreign_vocabulary, {"vocabulary": 999, "pieces_a_word": 9}, None),
    ],
)
def test_the_doctor_judges_a_text_from_the_shares_that_its_rules_name(rule, quiet, found):
    options = {"vocab": "a", "model": None, "shards": None}
    assert judged(rule, [1.0], report={"text": quiet}, options=options) is None
    assert found is None or judged(rule, [1.0], report={"text": found}, options=options)


@pytest.mark.parametrize(
    ("losses", "more", "is_found"),
    [
        (falling(1.0, 1.2, 1.09), {}, False),
        (falling(1.0, 1.2, 1.11), {}, True),  # a tenth above the first steps
        (falling(1.0, 0.5, 0.64), {}, False),
        (falling(1.0, 0.5, 0.66), {}, True),  # three tenths of the gain are lost
        (falling(1.0, 0.5, 0.66), {"noise": 0.09}, False),  # or two deviations of the noise
        (falling(1.0, 0.99, 1.0), {}, False),  # or two hundredths of the first loss
        (falling(1.0, 0.71, 0.71), {"rates": (9.0, 1.0)}, True),
        (falling(1.0, 0.71, 0.71), {"rates": (8.0, 1.0)}, False),  # eight times the recipe's
        (falling(1.0, 0.69, 0.69), {"rates": (9.0, 1.0)}, False),
    ],
)
def test_a_rate_is_too_high_from_the_losses_that_the_rule_names(losses, more, is_found):
    assert bool(judged(doctor.rate_too_high, losses, **more)) is is_found


@pytest.mark.parametrize(
    ("last", "rate", "is_found"), [(0.91, 0.125, True), (0.91, 0.13, False), (0.89, 0.125, False)]
)
def test_a_rate_is_too_low_at_an_eighth_of_the_recipe(last, rate, is_found):
    found = judged(doctor.rate_too_low, falling(1.0, last, last), rates=(rate, 1.0))
    assert bool(found) is is_found
    assert not found or found[0].startswith("The loss went from 1.000 to 0.910 only")


@pytest.mark.parametrize(("size", "noise", "is_found"), [(4, 0.6, True), (5, 0.6, False), (4, 0.4, False)])
def test_a_batch_is_too_small_at_an_eighth_of_the_recipe_and_much_noise(size, noise, is_found):
    how = {"options": {"batch_size": size}, "usual": SimpleNamespace(batch_size=32), "pretrains": False}
    found = judged(doctor.batch_too_small, falling(1.0, 0.5, 0.5), noise=noise, **how)
    assert bool(found) is is_found
    assert not found or "fell by 0.5 in all; a batch has 4 examples, the recipe's 32." in found[0]


@pytest.mark.parametrize(("steps", "averaged"), [(3, 3), (5, 5), (50, 5), (60, 6), (200, 20)])
def test_last_losses_are_those_of_a_tenth_of_the_steps_and_at_least_five(steps, averaged, tmp_path):
    lines = [{"loss": 0, "mlm_loss": step, "learning_rate": 0, "gradient_norm": 0} for step in range(steps)]
    found = Record(tmp_path, SimpleNamespace(masked_lm_prob=0.15), lines, {})
    assert (found.averaged, found.last_loss) == (averaged, np.mean(range(steps)[-averaged:]))


@pytest.mark.parametrize(
    ("facts", "has_learnt"),
    [
        ({"unigram": 5.0, "last": 4.89}, True),
        ({"unigram": 5.0, "last": 4.91}, False),
        ({"unigram": None, "last": 5.89}, True),
        ({"unigram": None, "last": 5.91}, False),
    ],
)
def test_a_tenth_of_a_nat_below_what_anybody_guesses_is_learnt(facts, has_learnt, tmp_path, monkeypatch):
    monkeypatch.setattr(Record, "unigram", facts["unigram"])
    lines = [
        {"loss": 0, "mlm_loss": loss, "learning_rate": 0, "gradient_norm": 0}
        for loss in [6.0] * 2 + [facts["last"]] * 8
    ]
    assert Record(tmp_path, SimpleNamespace(masked_lm_prob=0.15), lines, {}).has_learnt is has_learnt


@pytest.mark.parametrize(("last", "has_learnt"), [(0.94, True), (0.96, False)])
def test_fine_tuning_has_learnt_once_its_loss_fell_by_a_twentieth(last, has_learnt, tmp_path):
    lines = [{"loss": loss, "learning_rate": 0, "gradient_norm": 0} for loss in [1.0] * 2 + [last] * 8]
    assert Record(tmp_path, SimpleNamespace(), lines, {}).has_learnt is has_learnt
