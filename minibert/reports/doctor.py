"""Name what is wrong with a training, from what its run folder holds: the rules of `minibert doctor`.

Each rule is a function from a `Record` to its evidence and an advice, or to None. `RULES` has them in the
order in which a person would ask: first the data, then the model, then how it was trained, and last what is
only a symptom. The first finding is therefore the likeliest cause.

A rule about the course of the loss wants a bad outcome as well as its sign (`Record.has_learnt`): a run that
beats its baselines is left alone, however odd its curve, except where it overfits or the machine became
slower. The thresholds are not fitted to the runs of the tests: each comes from the source that its docstring
names, or lies far from what healthy runs show.
"""

import dataclasses
import math
import shlex
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from minibert import hub
from minibert.base.errors import InputError
from minibert.base.model_names import WEIGHTS_FILE
from minibert.base.terminal import counted
from minibert.core.config import BertConfig
from minibert.core.folder import hugging_face_names
from minibert.reports.results import metric_name, metric_number, trivial_remark

LEAST_STEPS = 50  # the loss of fewer steps says nothing; they are within the warm-up of most runs
ENDS = 0.1  # share of the steps over which the last losses are averaged, and at least this many:
LEAST_AVERAGED = 5
LEARNT = 0.1  # nats under the unigram entropy that are worth the name; the plateau's own width is some 0.05
FALLEN = 0.05  # share of the first loss by which that of fine-tuning has to fall
MANY_TIMES = 8  # a rate or a batch that differs from the recipe by more is worth a word, if nothing is learnt
# Tokens after which small models left the plateau, by the length of the sequences, and the shortest length of
# the recipes (docs/log/2026-11-20-plateau.md).
ESCAPES = {8: 0.4e6, 16: 0.8e6}
ESCAPED = "Small models left it after 0.4 million tokens in sequences of 8, 0.8 in those of 16 (40% masked)"
SHORTEST = 10
SLOWER = "Start again with a third of the learning rate, or a longer warm-up."


class Finding(NamedTuple):
    """What is wrong with a run."""

    rule: str  # name of the rule, in words
    evidence: str  # a sentence with numbers
    advice: str  # a sentence

    def text(self) -> str:
        """Return two lines, the finding and the advice."""
        return f"{self.rule}: {self.evidence}\n  {self.advice}"


Verdict: TypeAlias = tuple[str, str] | None  # evidence and advice; None if the rule finds nothing
Rule: TypeAlias = Callable[["Record"], Verdict]  # takes what the run folder holds
Tensors: TypeAlias = Mapping[str, np.ndarray]  # by Hugging Face's names


@dataclass(frozen=True)
class Record:
    """What a run folder holds; the properties are the quantities that several rules need.

    Attributes
    ----------
    folder : Path
        Folder of the run.
    options : PretrainOptions or FinetuneOptions
        Those of the run, as `resolved` returns them.
    lines : sequence of dict
        The lines of `metrics.jsonl`.
    report : dict
        The contents of `report.json`; {} for a run that is not finished.
    is_training : bool
        Whether a process is training it now.
    """

    folder: Path
    options: Any
    lines: Sequence[Mapping[str, float]]
    report: Mapping[str, Any]
    is_training: bool = False

    @property
    def pretrains(self) -> bool:
        """Return whether this is a pre-training."""
        return hasattr(self.options, "masked_lm_prob")

    @cached_property
    def steps(self) -> list[Mapping[str, float]]:
        """Return the lines of training steps, without those of evaluations."""
        return [line for line in self.lines if {"loss", "learning_rate", "gradient_norm"} <= line.keys()]

    # -> (n,)
    def values(self, name: str) -> np.ndarray:
        """Return a metric of the training steps that have it.

        Parameters
        ----------
        name : str
            Name in `metrics.jsonl`.
        """
        return np.array([line[name] for line in self.steps if name in line], np.float64)

    @cached_property
    def losses(self) -> np.ndarray:
        """Return the losses of the steps, in a pre-training those of masked words alone: (n,)."""
        return self.values("mlm_loss" if self.pretrains else "loss")

    @property
    def is_finite(self) -> bool:
        """Return whether all losses are numbers."""
        return bool(np.isfinite(self.losses).all())

    @property
    def can_be_judged(self) -> bool:
        """Return whether there are enough steps for the rules, or a loss that is not a number."""
        return len(self.losses) >= LEAST_STEPS or not self.is_finite

    @property
    def averaged(self) -> int:
        """Return over how many steps the last losses are averaged."""
        return min(len(self.losses), max(LEAST_AVERAGED, round(ENDS * len(self.losses))))

    @property
    def first_loss(self) -> float:
        """Return the mean loss of two steps: a warm-up begins with a rate of 0, so nothing has changed."""
        return float(self.losses[:2].mean())

    @property
    def last_loss(self) -> float:
        """Return the mean loss of the last steps."""
        return float(self.losses[-self.averaged :].mean())

    @cached_property
    def lowest_loss(self) -> float:
        """Return the lowest mean loss of as many steps in a row as `last_loss` averages."""
        sums = np.cumsum([0, *self.losses])
        return float((sums[self.averaged :] - sums[: -self.averaged]).min() / self.averaged)

    @property
    def noise(self) -> float:
        """Return the standard deviation of the loss from one step to the next, in the second half.

        It is 0 where that half has a single step.
        """
        later = self.losses[len(self.losses) // 2 :]
        return float(np.diff(later).std() / math.sqrt(2)) if len(later) > 1 else 0.0

    @property
    def unigram(self) -> float | None:
        """Return the unigram entropy of a pre-training's text, in nats, if it can be known.

        A report has it. Without one, a new model that begins with the log-frequencies as its output bias
        begins with this loss.
        """
        if held_out := self.report.get("held_out"):
            return float(held_out["text_unigram"])
        begins_there = self.pretrains and self.options.unigram_bias  # trained weights bring their own
        return float(self.losses[:LEAST_AVERAGED].mean()) if begins_there else None

    @property
    def final_loss(self) -> float:
        """Return the loss on held-out text, or of the last steps where nothing was held out or measured."""
        if held_out := self.report.get("held_out"):
            return float(held_out["loss"])
        measured = [line["held_out_loss"] for line in self.lines if "held_out_loss" in line]
        return measured[-1] if measured else self.last_loss

    @property
    def has_learnt(self) -> bool:
        """Return whether the outcome is better than what a constant guess reaches."""
        if self.pretrains:
            if self.unigram is None:
                return self.last_loss < self.first_loss - LEARNT
            return self.final_loss < self.unigram - LEARNT
        return not trivial_remark(self.report) and self.last_loss < (1 - FALLEN) * self.first_loss

    @cached_property
    def usual(self) -> Any:
        """Return the options with the learning rate and the batch size of the recipe."""
        rate = "learning_rate" if self.pretrains else "learning_rates"
        options = dataclasses.replace(self.options, **{rate: None}, batch_size=None)
        return options.resolved(None if self.pretrains else self.model)

    @cached_property
    def model(self) -> BertConfig | None:
        """Return the configuration of the run's model, or else of the one that it began with."""
        return model_of(self.options, self.folder)

    @cached_property
    def rates(self) -> tuple[float, float]:
        """Return the highest learning rate, also one that a warm-up has yet to reach, and the recipe's.

        Weights that begin no better than the unigram entropy have a new head, whose recipe has a higher rate.
        """
        if not self.pretrains:
            return self.options.learning_rate, self.usual.learning_rate
        is_new = self.unigram is None or self.first_loss > self.unigram - LEARNT
        return self.options.rate_from(is_new, self.model), self.usual.rate_from(is_new, self.model)

    @property
    def times_usual_rate(self) -> float:
        """Return the learning rate as a multiple of the recipe's."""
        rate, usual = self.rates
        return rate / usual

    def rate_text(self) -> str:
        """Describe the learning rate beside that of the recipe."""
        times = self.times_usual_rate
        multiple = f"{times:,.0f}" if times >= 10 else f"{times:.2g}"
        return f"the learning rate of {self.rates[0]:.2g} is {multiple} times the recipe's"


def resolved(options: Any, folder: Path) -> Any:
    """Return the options of a run with the recipe in place of every `None`.

    Parameters
    ----------
    options : PretrainOptions or FinetuneOptions
        As they are stored, perhaps before the run had chosen.
    folder : Path
        Folder of the run.

    Returns
    -------
    PretrainOptions or FinetuneOptions
    """
    if hasattr(options, "masked_lm_prob"):
        return options.resolved()
    return options.resolved(model_of(options, folder))


def model_of(options: Any, folder: Path) -> BertConfig | None:
    """Return the configuration of a run's model, or else of the one that it began with.

    Parameters
    ----------
    options : PretrainOptions or FinetuneOptions
        Options of the run.
    folder : Path
        Folder of the run.

    Returns
    -------
    BertConfig or None
        None if neither can be read.
    """
    return hub.stored_config(folder) or (hub.stored_config(options.model) if options.model else None)


def diverged(run: Record) -> Verdict:
    """Find a loss that is infinite or not a number."""
    name = "mlm_loss" if run.pretrains else "loss"
    for line in run.steps:
        if name in line and not math.isfinite(line[name]):
            evidence = f"The loss of step {line['step']:,.0f} is {line[name]}; {run.rate_text()}."
            return evidence, SLOWER
    return None


def too_few_targets(run: Record) -> Verdict:
    """Find a pre-training that hides less than 5% of its tokens.

    Only hidden targets teach a model to use context: what it sees it can copy. The paper hides 13.5% (90% of
    15%), and 15% to 40% are about equally good (Wettig et al. 2023); 5% is a third of what was ever useful.
    """
    if not run.pretrains or run.options.left_to_right:
        return None
    length = run.options.longest
    settings = run.options.instance_options(length)
    count = min(max(1, round(length * settings.masked_lm_prob)), settings.most_predictions)
    hidden = count / length * (1 - settings.mask_rates[1])
    if hidden >= 0.05:
        return None
    evidence = f"{hidden:.1%} of the tokens are hidden and asked for; 13.5% is usual."
    return evidence, "Ask for 15% of the tokens, and hide 80% of these behind [MASK]."


def foreign_vocabulary(run: Record) -> Verdict:
    """Find a vocabulary that is not made for the text, or not the one of the weights.

    Three signs: [UNK] is 5% of the pieces (a vocabulary loses under 0.1% of its own language); words fall
    into 3 pieces or more, although there are 1,000 pieces (it is 1.1 to 1.6 in the language of a vocabulary);
    trained weights begin a nat above the unigram entropy. Even in a foreign domain they begin below it; those
    whose masked-LM head is new may not, and are not judged by this.
    """
    pieces = run.report.get("text", {})
    advice = "Use the vocabulary that belongs to the weights, or learn one from this text."
    if pieces.get("unknown", 0) >= 0.05:
        return f"{pieces['unknown']:.1%} of the pieces are [UNK].", advice
    is_borrowed = not run.pretrains or run.options.vocab or run.options.model or run.options.shards
    if is_borrowed and pieces.get("vocabulary", 0) >= 1000 and pieces.get("pieces_a_word", 0) >= 3:
        return f"Words are cut into {pieces['pieces_a_word']:.1f} pieces on average.", advice
    has_trained_head = run.pretrains and run.options.model and not run.report.get("new_head")
    if has_trained_head and run.report.get("held_out"):
        above = run.first_loss - (run.unigram or math.inf)
        if above > 1:
            return f"Trained weights begin {above:.1f} nats above the best guess without context.", advice
    return None


def duplicated_lines(run: Record) -> Verdict:
    """Find a corpus of which 5% or more are repeated lines.

    It is 2% in Wikipedia and 0.4% in novels; `pretraining.preparation` warns from the same share on. Texts of
    less than 1,000 lines are not judged, as there.
    """
    text = run.report.get("text", {})
    repeated = text.get("repeated", 0)
    if text.get("lines", 0) < 1000 or repeated < 0.05:
        return None
    evidence = f"In the first {text['lines']:,} lines, {repeated:.0%} of the text was there before."
    return evidence, "Remove repeated lines; held-out text may repeat those of training, too."


def dead_layer(run: Record) -> Verdict:
    """Find layers in which half of the biases of the values or of the feed-forward units never changed.

    Biases have no weight decay, and AdamW moves them by about the learning rate in each step, whatever the
    size of the gradient. Only a gradient of exactly 0 leaves them alone: that of a unit that is off for every
    token, or behind a matrix of zeros. The bias of the keys has none in any model, as softmax ignores it.
    """
    trains_bert = run.pretrains or not run.options.feature_based
    has_weights = trains_bert and (run.folder / WEIGHTS_FILE).exists()
    if not has_weights or run.values("learning_rate").max() < 1e-6:
        return None
    try:
        now, before = _weights_now_and_before(run)
    except InputError:  # a file is not there any more
        return None
    parts = {"values in the attention": "attention.qkv_bias", "feed-forward units": "feed_forward.in_bias"}
    for layer in count(0 if run.pretrains else run.options.freeze or 0):
        for what, ours in parts.items():
            name = hugging_face_names(f"layers.{layer}.{ours}")[-1]  # of query, key and value, the value's
            if name not in now:  # all layers have been looked at
                return None
            initial = np.zeros_like(now[name]) if before is None else before.get(name)
            unchanged = _unchanged(now[name], initial)
            if unchanged >= 0.5:
                which = f"biases of the {what} of layer {layer + 1}"
                evidence = f"{unchanged:.0%} of the {which} never received a gradient."
                return evidence, "Start from other weights, or again with a lower learning rate."
    return None


def _weights_now_and_before(run: Record) -> tuple[Tensors, Tensors | None]:
    """Return the encoder's weights after a run, and before it; the latter are None if they were random."""
    with warnings.catch_warnings(action="ignore"):  # the run has shown them
        now = hub.encoder_tensors(run.folder)
        before = hub.encoder_tensors(run.options.model) if run.options.model else None
    return now, before


def _unchanged(now: np.ndarray, before: np.ndarray | None) -> float:
    """Return the share of a bias that has its initial values, in single precision; 0 if they are unknown."""
    if before is None or now.shape != before.shape or not now.size:
        return 0.0
    return float(np.mean(now.astype(np.float32) == before.astype(np.float32)))


def far_targets(run: Record) -> Verdict:
    """Find numbers to predict among which one lies more than 8 standard deviations from their mean.

    A head learns numbers that are standardised by mean and deviation. One label of another magnitude, such as
    a missing decimal point, makes all others nearly equal. Of a million normal numbers none is 6 away.
    """
    targets = run.report.get("targets", {})
    farthest = targets.get("farthest", 0)
    if farthest <= 8 or run.has_learnt:
        return None
    mean, scale = targets.get("mean", 0), targets.get("scale", 0)
    evidence = f"A label is {farthest:.0f} standard deviations from the mean ({mean:.4g} ± {scale:.4g})."
    return evidence, "Correct or remove outliers, or predict the logarithms of the numbers."


def rate_too_high(run: Record) -> Verdict:
    """Find a loss that went up for good, or that never fell at many times the recipe's rate.

    Up for good: the last tenth lies above the first steps by 10%, or has lost 30% of what the best tenth had
    gained, and in either case by two deviations of the noise. A new sequence length costs less, for a while.
    """
    if run.has_learnt:
        return None
    first, lowest, last = run.first_loss, run.lowest_loss, run.last_loss
    is_above = last - first > max(0.1 * first, 2 * run.noise)
    is_lost = last - lowest > max(0.3 * (first - lowest), 2 * run.noise, 0.02 * first)
    is_stuck = last > 0.7 * first and run.times_usual_rate > MANY_TIMES
    if not (is_above or is_lost or is_stuck):
        return None
    norms = run.values("gradient_norm")
    course = f"The loss began at {first:.3g}, was {lowest:.3g} at best and ends at {last:.3g}"
    evidence = f"{course}, with gradients of up to {norms.max():.3g}; {run.rate_text()}."
    return evidence, SLOWER


def stopped_early(run: Record) -> Verdict:
    """Find a run without a report that no process is training: it was stopped, or it failed.

    The folder of a run is locked while it trains. Where there are no such locks (Windows, some network
    drives), a run that is training looks like one that has stopped.
    """
    if run.report or run.is_training:
        return None
    done = counted(int(run.steps[-1]["step"]), "step")
    planned = getattr(run.options, "steps", None)
    of_planned = f" of {planned:,}" if planned else ""
    command = f"minibert {run.options.COMMAND} --resume --out {shlex.quote(str(run.folder))}"
    return f"It ended after {done}{of_planned}, without a report.", f"Resume it: {command}"


def rate_too_low(run: Record) -> Verdict:
    """Find a loss that has hardly moved at a small fraction of the recipe's rate."""
    if run.has_learnt or run.last_loss < 0.9 * run.first_loss or run.times_usual_rate > 1 / MANY_TIMES:
        return None
    evidence = f"The loss went from {run.first_loss:.3f} to {run.last_loss:.3f} only; {run.rate_text()}."
    return evidence, "Use the recipe's learning rate."


def batch_too_small(run: Record) -> Verdict:
    """Find batches of a small fraction of the recipe's, whose noise hides what the run has gained.

    With a quarter of the recipe's tokens, pre-training stayed on the plateau
    (docs/log/2026-11-27-batch-ramp.md). Here it has to be an eighth, and the noise more than the whole gain.
    """
    size, usual, unit = run.options.batch_size, run.usual.batch_size, "examples"
    if run.pretrains:  # in the shortest of the recipes, sequences end with a length of 32
        size, usual, unit = run.options.tokens_per_step, 32 * usual, "tokens"
    gain = run.first_loss - run.last_loss
    if run.has_learnt or size * MANY_TIMES > usual or run.noise < gain:
        return None
    noise = f"The loss varies by {run.noise:.2g} from step to step, and fell by {max(0.0, gain):.2g} in all"
    return f"{noise}; a batch has {size:,} {unit}, the recipe's {usual:,}.", "Use larger batches."


def learnt_by_heart(run: Record) -> Verdict:
    """Find fine-tuning whose training loss fell by a third while dev is no better than a constant answer.

    Training examples that can be fitted and dev examples that can't: the labels do not belong to the texts
    (shuffled, shifted by a row), or the texts do not tell them, or they are far too few. For classes, the
    later evaluations decide, as the best of many epochs is a lucky one: their mean is at most a quarter of
    the 95% interval, about one standard error, above that of the constant answer.
    """
    guess = _no_better_than(run)
    if not guess or run.last_loss > 2 / 3 * run.first_loss:
        return None
    evidence = f"The training loss fell from {run.first_loss:.3g} to {run.last_loss:.3g}, but {guess}."
    return evidence, "Check that each label belongs to its text; if they do, more examples are needed."


def _no_better_than(run: Record) -> str:
    """Say which constant answer the metric on dev is no better than; "" if it is, or if that is not known."""
    report = run.report
    if constant := report.get("constant"):
        answer = f"the mean of the numbers, {constant['value']:.6g}"
        return "" if constant["is_beaten"] else f"the predictions for dev are no better than {answer}"
    if not report.get("majority") or not report.get("interval"):
        return ""
    metric, majority = report["metric"], report["majority"]
    values = [line[f"dev_{metric}"] for line in run.lines if f"dev_{metric}" in line]
    later = values[len(values) // 2 :] or [report["scores"][metric]]
    mean, constant = float(np.mean(later)), majority["scores"][metric]
    low, high = report["interval"]
    if not mean - constant <= (high - low) / 4:
        return ""
    reached = f"{metric_name(metric)} on dev is {metric_number(metric, mean)}"
    always = f"that of always answering {majority['label']!r} {metric_number(metric, constant)}"
    return f"{reached}, and {always}"


def on_the_plateau(run: Record) -> Verdict:
    """Find a pre-training that does no better than the frequencies of the pieces.

    Small BERTs rest there until they have learnt where to look. Shorter sequences leave it sooner: after 0.4
    million tokens in windows of 8, and 0.8 million in windows of 16 with 40% of the tokens masked
    (docs/log/2026-11-20-plateau.md). Copying the targets that it sees is worth half a nat of the training
    loss; a whole nat below is memory. A run that is training is not judged before it has read so much.
    """
    if not run.pretrains or run.has_learnt or run.unigram is None or run.last_loss < run.unigram - 1:
        return None
    shortest = min(length for length, _ in run.options.lengths)
    read = run.values("tokens").max(initial=0)
    losses = f"its loss is {run.final_loss:.2f} nats, the unigram entropy {run.unigram:.2f}"
    evidence = f"The model makes no use of context yet: {losses}, after {read / 1e6:.2g} million tokens."
    expected = next((tokens for length, tokens in ESCAPES.items() if shortest <= length), math.inf)
    if run.is_training and read <= expected:
        return None  # it is early
    if read > expected:
        checks = "look at its learning rate, its batch size and its masks"
        return evidence, f"{ESCAPED}; this run should have left it, too: {checks}."
    shorter = f", or begin with sequences of {SHORTEST}, as shorter ones leave it sooner"
    return evidence, f"{ESCAPED}; train longer{shorter if shortest > SHORTEST else ''}."


def overfitted(run: Record) -> Verdict:
    """Find a held-out loss, or a metric on dev, that got worse while the training loss fell.

    For pre-training, by 0.1 nats since the best evaluation at the same length. For fine-tuning, the mean of
    the last quarter of the evaluations lies below the 95% interval of the best epoch's metric, and that epoch
    was better than a constant answer; else it may be the luckiest of many.
    """
    if trivial_remark(run.report):
        return None
    name = "held_out_loss" if run.pretrains else f"dev_{run.report.get('metric')}"
    rows = [line for line in run.lines if name in line]
    rows = [line for line in rows if line.get("seq_length") == rows[-1].get("seq_length")]
    if len(rows) < 3:
        return None
    values = np.array([line[name] for line in rows], np.float64)
    best = int(values.argmin() if run.pretrains else values.argmax())
    if run.pretrains:
        late, is_worse = values[-1], values[-1] > values[best] + 0.1
        what, best_text, late_text = "held-out loss", f"{values[best]:.2f}", f"{late:.2f}"
    else:
        late = values[-max(1, len(values) // 4) :].mean()
        is_worse = late < run.report["interval"][0]
        metric = run.report["metric"]
        what = f"{metric_name(metric)} on dev"
        best_text, late_text = metric_number(metric, values[best]), metric_number(metric, float(late))
    reached = max(1, sum(line["step"] <= rows[best]["step"] for line in run.steps))
    then = run.losses[max(0, reached - run.averaged) : reached].mean()
    if not is_worse or run.last_loss > 0.95 * then:
        return None
    course = f"from {best_text} at step {rows[best]['step']:,} to {late_text}"
    training = f"the training loss fell from {then:.3g} to {run.last_loss:.3g}"
    return f"The {what} got worse, {course}; {training}.", "Train less long, on more data, or with dropout."


def slower_machine(run: Record) -> Verdict:
    """Find a speed that halved: in each of the last two fifths, less than half that of the first.

    Operations per second are compared, as longer sequences take more of them for a token; tokens if these
    were not counted. On a shared machine, healthy runs varied by a third. What lasts less than a minute may
    be another program that has ended.
    """
    counted_operations = run.values("useful_gflops").max(initial=0) >= 1  # smaller ones are rounded too much
    speeds = run.values("useful_gflops" if counted_operations else "tokens_per_second")
    if len(speeds) < 5 * LEAST_AVERAGED or not len(run.values("seconds")):
        return None
    fifths = [float(np.median(part)) for part in np.array_split(speeds, 5)]
    seconds = run.values("seconds")
    if max(fifths[-2:]) >= fifths[0] / 2 or seconds[-1] - seconds[len(seconds) * 3 // 5] < 60:
        return None
    unit = "GFLOP/s" if counted_operations else "tokens/s"
    evidence = f"The speed fell from {fifths[0]:,.3g} to {fifths[-1]:,.3g} {unit}."
    return evidence, "See what else runs on the machine, and whether it throttles or swaps."


RULES: Mapping[str, Rule] = {
    "diverged": diverged,
    "too few targets": too_few_targets,
    "vocabulary of another text": foreign_vocabulary,
    "repeated lines": duplicated_lines,
    "dead layer": dead_layer,
    "labels far apart": far_targets,
    "learning rate too high": rate_too_high,
    "stopped before its end": stopped_early,
    "learning rate too low": rate_too_low,
    "batches too small": batch_too_small,
    "learnt by heart": learnt_by_heart,
    "overfitting": overfitted,
    "still on the unigram plateau": on_the_plateau,
    "the machine became slower": slower_machine,
}


def examine(run: Record) -> list[Finding]:
    """Apply all rules to a run.

    Parameters
    ----------
    run : Record
        What its folder holds.

    Returns
    -------
    list of Finding
        The likeliest cause first; [] for a healthy run, and for one that is too short to judge.
    """
    if not run.can_be_judged:
        return []
    findings = []
    names = list(RULES) if run.is_finite else ["diverged"]
    with np.errstate(all="ignore"):
        for name in names:
            verdict = RULES[name](run)
            if verdict:
                findings.append(Finding(name, *verdict))
    return findings


def summary(findings: Sequence[Finding], folder: Path) -> str:
    """Return the one line that the end of a run shows.

    Parameters
    ----------
    findings : sequence of Finding
        At least one.
    folder : Path
        Folder of the run.
    """
    first, *others = findings
    command = f"minibert doctor {shlex.quote(str(folder))}"
    rest = f" ({len(others)} more: {command})" if others else ""
    return f"doctor: {first.rule}. {first.evidence} {first.advice}{rest}"
