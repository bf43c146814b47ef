"""Masked words and next sentences as a task for the training loop (Devlin et al. 2019, section 3.1)."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from minibert.base.errors import InputError, warn
from minibert.core.batch import Batch
from minibert.core.config import BertConfig
from minibert.core.optim import Optimizer, optimizer_for, warmup_linear
from minibert.core.params import FlatParameters, precision_for
from minibert.core.step import MaskedAndNext
from minibert.data.instances import BEGINNING, InstanceOptions, Instances, Position
from minibert.engines.runtime import runtime_of
from minibert.hub import load
from minibert.model.batch import BatchPart
from minibert.model.params import PRETRAINING, Parameters, initialise
from minibert.model.positions import begin_positions, with_positions
from minibert.pretraining.evaluation import TARGETS, HeldOut, evaluation_batches, score
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.preparation import Text, require_segments
from minibert.pretraining.recipes import Stage, Timetable
from minibert.training.loop import State

PREVIEW_TARGETS = 2_000  # of the held-out text, on the way
# Of a run with a given number of steps, measuring takes at most this share of the work of training, which is
# counted in tokens and not by a clock: a run then measures the same targets on any machine, and when it is
# resumed. A token that is only read forward is a third of the work of one that is learnt from.
MEASURING_SHARE, FORWARD = 0.15, 1 / 3
LEAST_TARGETS = 500  # at the end of the shortest run


@dataclass(frozen=True)
class Pretraining:
    """What the loop is to train, and on what."""

    options: PretrainOptions
    text: Text
    ops: Any
    seconds_per_step: dict[int, float] = field(default_factory=dict, compare=False)  # as far as measured

    @property
    def config(self) -> BertConfig | None:
        """The model's configuration; None when the folder of `model` has it."""
        return None if self.options.model else self.options.model_config(self.text.tokenizer.vocab_size)

    def start(self, checkpoint: Any = None) -> State:
        """Return a checkpoint's state or a new one, whose plan says if `model` got a new masked-LM head."""
        plan, o = {}, self.options
        if checkpoint is not None:
            params = checkpoint.params
        elif o.model:
            params, plan["new_head"] = _loaded(o.model, o, self.text)
        else:
            config = o.model_config(self.text.tokenizer.vocab_size)
            params = initialise(config, o.seed, precision_for(o.dtype))
            if o.unigram_bias:
                params["mlm.output_bias"][...] = self.text.log_unigram()
        state = State(params, self.optimizer(params), plan=plan)
        if checkpoint is not None:
            state.restore(checkpoint)
        return state

    def optimizer(self, params: Parameters) -> Optimizer:
        return optimizer_for(params, **self.options.update_rule)

    def rate(self, timetable: Timetable) -> Callable[[int], float]:
        """Return the learning rate of every step of a run."""
        o, total = self.options, timetable.planned_total
        peak, decay = o.learning_rate, o.google_decay
        assert o.warmup is not None and peak is not None and decay is not None  # since the run was planned
        warmup = round(total * o.warmup)
        return lambda step: warmup_linear(timetable.planned(step), total, warmup, peak, decay)

    def stages(self, timetable: Timetable) -> list[Stage]:
        """Return the lengths of a run's sequences, one after another."""
        planned, actual = self.options.stages(timetable.planned_total), timetable.step_at
        return [Stage(length, actual(begin), actual(end)) for length, begin, end in planned]

    def objective(self, config: BertConfig) -> MaskedAndNext:
        """Return what is minimised."""
        return MaskedAndNext(config, self.options.seed)

    def batches(
        self, timetable: Timetable, step: int = 0, position: list[int] | None = None
    ) -> Iterator[tuple[Batch, list[int]]]:
        """Yield the batch of every step from `step` on, with the position in the data after it.

        A position is [sequence length, epoch, block, offset]. Where the length changes, a new pass over the
        text begins: instances of another length are other instances.
        """
        for stage in [one for one in self.stages(timetable) if one.end > step]:
            at = BEGINNING
            if position is not None:
                length, *rest = position
                at = Position(*rest) if length == stage.seq_length else Position(rest[0] + 1, 0, 0)
            runtime = runtime_of(self.ops)
            stream = self.stage_batches(stage.seq_length, at, runtime.rank, runtime.world_size)
            # The last position tells the next stage which epoch is over.
            for batch, position in islice(stream, stage.end - max(step, stage.begin)):
                yield batch, position

    def stage_batches(
        self, seq_length: int, at: Position = BEGINNING, rank: int = 0, world_size: int = 1
    ) -> Iterator[tuple[Batch, list[int]]]:
        """Yield endless batches of one sequence length from a position on, with the position after each.

        Of every batch only the share of process `rank` is read, with the weights of a batch of nothing else.
        """
        o, count = self.options, max(1, self.options.tokens_per_step // seq_length)
        if count < world_size:
            leaves = f"leaves some of {world_size} processes without any; raise --batch-size or start fewer."
            raise InputError(f"A step of {count} sequences of {seq_length} tokens {leaves}")
        first, last = (count * border // world_size for border in (rank, rank + 1))
        stream = self.text.training(self.options, seq_length).stream(at, count, first, last)
        while True:
            sequences, after = zip(*islice(stream, count), strict=True)
            batch = Batch.pack(sequences[first:last], first)
            if world_size > 1:
                most = seq_length if o.left_to_right else o.instance_options(seq_length).most_predictions
                own, asks = vars(batch), o.pairs_at(seq_length)
                batch = BatchPart(
                    **own, parts=world_size, sequences=count, longest=seq_length, most_masked=most, asks=asks
                )
            yield batch, [seq_length, *map(int, after[-1])]

    def held_out_batches(self, seq_length: int, targets: int) -> list[Batch]:
        """Make held-out batches with `targets` scored positions."""
        return list(evaluation_batches(self.held_out(seq_length), self.mask_id, targets))

    def held_out(self, seq_length: int) -> Instances:
        """Return the instances of one length from held-out text."""
        return self.text.held_out(seq_length, self.options.pairs_at(seq_length), self.options.left_to_right)

    @property
    def mask_id(self) -> int | None:
        """What a scored position shows; None left to right, where all targets are scored."""
        return None if self.options.left_to_right else self.text.tokenizer.mask_id

    def held_out_targets(self, state: State, timetable: Timetable, targets: int) -> int:
        """Reduce a usual number of held-out targets where a run is too short for all of them.

        Parameters
        ----------
        state : State
            Of a run with so many minutes its plan has the share of the usual targets there is time for.
        timetable : Timetable
            How many steps there are.
        targets : int
            How many positions a long run measures.

        Returns
        -------
        int
            From 1 to `targets`.
        """
        share = state.plan.get("held_out_share")
        if share is None:
            share = self.measured_share(timetable.planned_total) if self.options.steps else 1.0
        return math.ceil(targets * share)

    def measured_share(self, steps: int) -> float:
        """Return what share of the usual held-out targets a run of so many steps measures.

        Parameters
        ----------
        steps : int
            All steps of the run.

        Returns
        -------
        float
            Above 0 and at most 1: such that all measuring is `MEASURING_SHARE` of the work of the steps, but
            at least `LEAST_TARGETS` are measured at the end.
        """
        o = self.options
        at_the_end = TARGETS if o.left_to_right else 2 * TARGETS  # once more with contexts shuffled
        targets = at_the_end + o.evaluations * PREVIEW_TARGETS
        standard = InstanceOptions()
        masked = 1.0 if o.left_to_right else standard.masked_lm_prob * standard.mask_rates[0]
        usual_work = FORWARD * targets / masked
        affordable = MEASURING_SHARE * steps * o.tokens_per_step / usual_work
        return min(1.0, max(LEAST_TARGETS / TARGETS, affordable))

    def score(self, params: FlatParameters, batches: Iterable[Batch]) -> HeldOut:
        """Score held-out text with some parameters."""
        return score(self.ops, params.config, params.tree, batches, self.mask_id)

    def config_after(self, state: State, timetable: Timetable) -> BertConfig:
        """Return the model's configuration, with the longest sequences that it has been trained on so far.

        With `model` that is known from the beginning, or, of a model from elsewhere, not at all.
        """
        config = state.params.config
        if self.options.model:
            return config
        since, trained = state.plan.get("replanned", (0, 0))  # before that step, by another timetable
        stages = [one for one in self.stages(timetable) if one.end > since]
        seen = [one.seq_length for one in stages if max(one.begin, since) < max(1, state.step)]
        return replace(config, trained_length=max(trained, *seen, 0))

    def lengthen(self, timetable: Timetable, state: State, position: list[int]) -> Callable[[], None] | None:
        """Return a function that initialises the positions that a longer stage is about to use, if any."""
        longer = state.position is not None and position[0] > state.position[0]
        known = self.config_after(state, timetable).trained_length if longer else None
        if known is None or known >= position[0]:
            return None
        # `state.params` when it is called: on devices they are others then.
        return lambda: begin_positions(state.params, known, position[0])

    def evaluator(self, timetable: Timetable) -> Callable[[State], dict[str, float]]:
        """Return a function that evaluates a little held-out text at the sequence length in training."""
        batches: dict[int, list[Batch]] = {}

        def evaluate(state: State) -> dict[str, float]:
            length = next(s.seq_length for s in self.stages(timetable) if state.step <= s.end)
            if length not in batches:
                targets = self.held_out_targets(state, timetable, PREVIEW_TARGETS)
                batches[length] = self.held_out_batches(length, targets)
            found = self.score(state.params, batches[length])
            return {"held_out_loss": found.loss, "held_out_accuracy": found.accuracy, "seq_length": length}

        return evaluate


def _loaded(source: str, options: PretrainOptions, text: Text) -> tuple[Parameters, bool]:
    """Load `model`, dropout and direction set by the options; tell whether its masked-LM head is new."""
    require_segments(options)  # of a run that goes on from before its first checkpoint, too
    stored, params, report = load(source, head=PRETRAINING)
    decoder = params.decoder
    if stored.vocab_size != text.tokenizer.vocab_size:
        other = f"{source} was trained with {stored.vocab_size:,}; use the vocabulary that it came with."
        raise InputError(f"The vocabulary has {text.tokenizer.vocab_size:,} pieces, but {other}")
    its_positions = stored.max_position_embeddings
    if options.extend_positions:
        params = with_positions(params, options.extend_positions, source)
        stored = params.config
    if stored.max_position_embeddings < options.longest:
        positions = f"the {stored.max_position_embeddings} positions of {source}"
        more = f"give it more with --extend-positions {options.longest}"
        message = f"$seq_length is longer than {positions}; choose shorter sequences, or {more}."
        raise InputError(message, seq_length=options.longest)
    for name, kept in (("hidden_act", stored.hidden_act), ("max_positions", its_positions)):
        asked = getattr(options, name)
        if asked not in (kept, getattr(PretrainOptions, name)):
            more = " or give more positions with --extend-positions" if name == "max_positions" else ""
            message = f"${name} is not what {source} has, {kept}, which stays; leave it out{more}."
            raise InputError(message, **{name: asked})
    if new_head := any(name.startswith("cls.predictions") for name in report.missing):
        params["mlm.output_bias"][...] = text.log_unigram()
        begins = "a new one begins with the frequencies of the text's pieces as its output bias"
        rate = options.rate_from(True)
        lacks = "no masked-LM head"
        if decoder is not None:
            lacks = "a masked-LM head whose decoder is not its word embeddings, which is not trained here"
        warn(f"{source} has {lacks}: {begins}, and all is trained at a rate of {rate:g}.")
    if trained := stored.trained_length:
        begin_positions(params, trained, options.longest)
        trained = max(trained, options.longest)
    fields = {"is_decoder": options.left_to_right, "trained_length": trained}
    config = BertConfig.from_dict(stored.to_dict() | options.dropouts | fields)
    return Parameters(config, params.flat.astype(precision_for(options.dtype))), new_head
