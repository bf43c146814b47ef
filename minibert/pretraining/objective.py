"""Make masked words and next sentences a task for the training loop (Devlin et al. 2019, section 3.1)."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from minibert.base.errors import InputError, warn
from minibert.core.batch import Batch
from minibert.core.config import BertConfig
from minibert.core.optim import Optimizer, optimizer_for, warmup_linear
from minibert.core.params import FlatParameters
from minibert.core.step import MaskedAndNext
from minibert.data.instances import BEGINNING, InstanceOptions, Instances, Position, stream_slots
from minibert.engines.runtime import runtime_of
from minibert.hub import load
from minibert.model.batch import BatchPart
from minibert.model.params import PRETRAINING, Parameters, initialise, precision_for
from minibert.model.positions import copy_trained_positions, with_positions
from minibert.pretraining.evaluation import TARGETS, HeldOut, evaluation_batches, score
from minibert.pretraining.options import POSITIONS, PretrainOptions
from minibert.pretraining.preparation import Text, require_segments
from minibert.pretraining.recipes import Stage, Timetable
from minibert.training.loop import State

PREVIEW_TARGETS = 2_000  # held-out targets of an evaluation during the run
# In a run with a given number of steps, measuring takes at most this share of the work of training. The work
# is counted in tokens and not by a clock, so that a run measures the same targets on any machine, and when it
# is resumed.
MEASURING_SHARE = 0.15
FORWARD = 1 / 3  # the cost of a forward pass, compared with that of training on the same tokens
LEAST_TARGETS = 500  # held-out targets at the end of the shortest run


def timetable_of(state: State) -> Timetable:
    """Return the timetable in the plan of a run.

    Parameters
    ----------
    state : State
        State of a run that was planned.
    """
    total = state.plan["total_steps"]
    knots = state.plan.get("timetable", ((0, 0), (total, total)))
    return Timetable(tuple(map(tuple, knots)))


@dataclass(frozen=True)
class Pretraining:
    """The task of a pre-training run: what the training loop asks for model, batches, rates and scores.

    Attributes
    ----------
    options : PretrainOptions
        Options of the run.
    text : Text
        Text to train and to measure on.
    ops : Ops
        The engine.
    seconds_per_step : dict of int to float
        Seconds of a step by sequence length, for the lengths measured so far.
    """

    options: PretrainOptions
    text: Text
    ops: Any
    seconds_per_step: dict[int, float] = field(default_factory=dict, compare=False)

    @property
    def config(self) -> BertConfig | None:
        """Return the model's configuration; None if it comes from the folder of `model`."""
        if self.options.model:
            return None
        return self.options.model_config(self.text.tokenizer.vocab_size)

    def start(self, checkpoint: Any = None) -> State:
        """Return a checkpoint's state or a new one; the plan of a new one says if the masked-LM head is new.

        Parameters
        ----------
        checkpoint : Checkpoint, optional
            The checkpoint to resume from; without one the run begins, with the weights of `model` or with
            initial values.

        Returns
        -------
        State
        """
        o = self.options
        plan = {}
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
        """Return a new optimizer of some parameters, with the update rule of the options.

        Parameters
        ----------
        params : Parameters
            The parameters to update.
        """
        return optimizer_for(params, **self.options.update_rule)

    def rate(self, timetable: Timetable) -> Callable[[int], float]:
        """Return the learning rate of every step of a run.

        Parameters
        ----------
        timetable : Timetable
            How many steps there are.

        Returns
        -------
        callable
            Function from the index of a step, from 0, to its rate.
        """
        o = self.options
        total = timetable.planned_total
        peak, decay = o.learning_rate, o.google_decay
        assert o.warmup is not None and peak is not None and decay is not None  # since the run was planned
        warmup = round(total * o.warmup)

        def rate(step: int) -> float:
            return warmup_linear(timetable.planned(step), total, warmup, peak, decay)

        return rate

    def stages(self, timetable: Timetable) -> list[Stage]:
        """Return the stages of a run, in order, each with its sequence length.

        Parameters
        ----------
        timetable : Timetable
            How many steps there are.

        Returns
        -------
        list of Stage
        """
        actual = timetable.step_at
        planned = self.options.stages(timetable.planned_total)
        return [Stage(length, actual(begin), actual(end)) for length, begin, end in planned]

    def objective(self, config: BertConfig) -> MaskedAndNext:
        """Return the loss function.

        Parameters
        ----------
        config : BertConfig
            The shape of the model.
        """
        return MaskedAndNext(config, self.options.seed)

    def batches(
        self, timetable: Timetable, step: int = 0, position: list[int] | None = None
    ) -> Iterator[tuple[Batch, list[int]]]:
        """Yield the batch of every step from `step` on, with the position in the data after it.

        A position is [sequence length, epoch, block, offset]. When the length changes, a new pass over the
        text begins, since instances of another length are different instances.

        Parameters
        ----------
        timetable : Timetable
            How many steps there are.
        step : int, default 0
            The first step to yield the batch of.
        position : list of int, optional
            The position after the previous step; None for the beginning of the text.

        Yields
        ------
        batch : Batch
        position : list of int
        """
        for stage in self.stages(timetable):
            if stage.end <= step:
                continue
            at = BEGINNING
            if position is not None:
                length, epoch, *place = position
                at = Position(epoch + 1, 0, 0)
                if length == stage.seq_length:
                    at = Position(epoch, *place)
            runtime = runtime_of(self.ops)
            stream = self.stage_batches(stage.seq_length, at, runtime.rank, runtime.world_size)
            # `position` is kept for the next stage, which begins with the epoch after it.
            for batch, position in islice(stream, stage.end - max(step, stage.begin)):
                yield batch, position

    def stage_batches(
        self,
        seq_length: int,
        at: Position = BEGINNING,
        rank: int = 0,
        world_size: int = 1,
    ) -> Iterator[tuple[Batch, list[int]]]:
        """Yield batches of one sequence length without end, with the position after each.

        Only the share of process `rank` is read of each batch; its weights are those of a batch that has
        nothing else.

        Parameters
        ----------
        seq_length : int
            Tokens in a sequence.
        at : Position
            Where in the data to begin.
        rank, world_size : int, default 0 and 1
            Index of this process, and number of all processes.

        Yields
        ------
        batch : Batch
            A `BatchPart` if there are several processes.
        position : list of int
            [sequence length, epoch, block, offset].

        Raises
        ------
        InputError
            When a step has fewer sequences than there are processes.
        """
        o = self.options
        count = max(1, o.tokens_per_step // seq_length)
        if count < world_size:
            leaves = f"leaves some of {world_size} processes without any; raise `batch_size` or start fewer."
            raise InputError(f"A step of {count} sequences of {seq_length} tokens {leaves}")
        first = count * rank // world_size
        last = count * (rank + 1) // world_size
        instances = self.text.training(self.options, seq_length)
        stream = stream_slots(instances, at, count, first, last)
        while True:
            sequences, after = zip(*islice(stream, count), strict=True)
            batch = Batch.pack(sequences[first:last], first)
            if world_size > 1:
                most_masked = seq_length
                if not o.left_to_right:
                    most_masked = o.instance_options(seq_length).most_predictions
                batch = BatchPart(
                    **vars(batch),
                    parts=world_size,
                    sequences=count,
                    longest=seq_length,
                    most_masked=most_masked,
                    asks=o.pairs_at(seq_length),
                )
            yield batch, [seq_length, *map(int, after[-1])]

    def held_out_batches(self, seq_length: int, targets: int) -> list[Batch]:
        """Make held-out batches with `targets` scored positions.

        Parameters
        ----------
        seq_length : int
            Tokens in a sequence.
        targets : int
            Number of scored positions; a short text has fewer.
        """
        return list(evaluation_batches(self.held_out(seq_length), self.mask_id, targets))

    def held_out(self, seq_length: int) -> Instances:
        """Return the instances of one length from held-out text.

        Parameters
        ----------
        seq_length : int
            Tokens in a sequence.
        """
        return self.text.held_out(seq_length, self.options.pairs_at(seq_length), self.options.left_to_right)

    @property
    def mask_id(self) -> int | None:
        """Return the id that scored positions show; None for left to right, where all targets are scored."""
        return None if self.options.left_to_right else self.text.tokenizer.mask_id

    def held_out_targets(self, state: State, targets: int) -> int:
        """Reduce the usual number of held-out targets for a run that is too short for all of them.

        Parameters
        ----------
        state : State
            State of the run. With `minutes`, its plan has the share of the targets that there is time for.
        targets : int
            Number of positions that a long run measures.

        Returns
        -------
        int
            From 1 to `targets`.
        """
        share = state.plan.get("held_out_share")
        if share is None:
            steps = timetable_of(state).planned_total
            share = self.measured_share(steps) if self.options.steps else 1.0
        return math.ceil(targets * share)

    def held_out_whole(self, state: State) -> list[Batch]:
        """Make the held-out batches of the last evaluation, the same as those measured before training.

        Parameters
        ----------
        state : State
            State of the run, for its plan.
        """
        targets = self.held_out_targets(state, TARGETS)
        if "held_out_before" in state.plan:  # a longer run would measure more, which could not be compared
            targets = state.plan["held_out_before"]["targets"]
        return self.held_out_batches(self.options.longest, targets)

    @property
    def whole_evaluations(self) -> int:
        """Return how often a run scores all its held-out targets."""
        at_the_end = 1 if self.options.left_to_right else 2  # the second time with shuffled contexts
        return at_the_end + bool(self.options.model)  # trained weights are measured before training, too

    def measured_share(self, steps: int) -> float:
        """Return the share of the usual held-out targets that a run of this length is evaluated on.

        Parameters
        ----------
        steps : int
            Number of steps of the run.

        Returns
        -------
        float
            Above 0 and at most 1, so that all measuring is `MEASURING_SHARE` of the work of the steps, but at
            least `LEAST_TARGETS` are measured at the end.
        """
        o = self.options
        targets = self.whole_evaluations * TARGETS + o.evaluations * PREVIEW_TARGETS
        standard = InstanceOptions()
        masked = 1.0 if o.left_to_right else standard.masked_lm_prob * standard.mask_rates[0]
        usual_work = FORWARD * targets / masked
        affordable = MEASURING_SHARE * steps * o.tokens_per_step / usual_work
        return min(1.0, max(LEAST_TARGETS / TARGETS, affordable))

    def score(self, params: FlatParameters, batches: Iterable[Batch]) -> HeldOut:
        """Score held-out text with given parameters.

        Parameters
        ----------
        params : FlatParameters
            The model.
        batches : iterable of Batch
            Held-out text.
        """
        return score(self.ops, params.config, params.tree, batches, self.mask_id)

    def config_after(self, state: State) -> BertConfig:
        """Return the model's configuration, with the length of the longest sequences trained on so far.

        With `model` that length is known from the beginning or, if another library trained it, not at all.

        Parameters
        ----------
        state : State
            State of the run.
        """
        config = state.params.config
        if self.options.model:
            return config
        return replace(config, trained_length=self.longest_so_far(state))

    def longest_so_far(self, state: State) -> int:
        """Return the length of the longest sequences that this run has trained on so far.

        Parameters
        ----------
        state : State
            State of the run.

        Returns
        -------
        int
            In tokens; before the first step, that of the first sequences.
        """
        since, longest = state.plan.get("replanned", (0, 0))  # steps before `since` had another timetable
        done = max(1, state.step)
        for stage in self.stages(timetable_of(state)):
            has_begun = max(stage.begin, since) < done
            if has_begun and stage.end > since:
                longest = max(longest, stage.seq_length)
        return longest

    def lengthening_steps(self, state: State) -> frozenset[int]:
        """Return the steps before which `lengthen` is called.

        Parameters
        ----------
        state : State
            State of the run.

        Returns
        -------
        frozenset of int
            Steps still to come whose sequences are longer than those of the step before.
        """
        steps = set()
        length_before = state.position[0] if state.position is not None else None
        for length, begin, end in self.stages(timetable_of(state)):
            if end <= state.step:
                continue
            if length_before is not None and length > length_before:
                steps.add(max(begin, state.step))
            length_before = length
        return frozenset(steps)

    def lengthen(self, state: State, position: list[int]) -> None:
        """Initialise the untrained positions that a longer stage is about to use.

        Parameters
        ----------
        state : State
            State of the run, with the position of its last batch; its parameters are changed.
        position : list of int
            Position of the next batch.
        """
        length = position[0]
        if state.position is None or length <= state.position[0]:
            return
        trained = self.config_after(state).trained_length
        if trained is not None and trained < length:
            copy_trained_positions(state.params, trained, length)

    def evaluator(self) -> Callable[[State], dict[str, float]]:
        """Return a function that evaluates some held-out text at the current sequence length.

        Returns
        -------
        callable
            Function from a state to "held_out_loss", "held_out_accuracy" and "seq_length".
        """
        batches: dict[int, list[Batch]] = {}

        def evaluate(state: State) -> dict[str, float]:
            stages = self.stages(timetable_of(state))
            length = next(stage.seq_length for stage in stages if state.step <= stage.end)
            if length not in batches:
                targets = self.held_out_targets(state, PREVIEW_TARGETS)
                batches[length] = self.held_out_batches(length, targets)
            metrics = self.score(state.params, batches[length])
            return {
                "held_out_loss": metrics.loss,
                "held_out_accuracy": metrics.accuracy,
                "seq_length": length,
            }

        return evaluate


def _loaded(source: str, options: PretrainOptions, text: Text) -> tuple[Parameters, bool]:
    """Load `model` with the dropout and direction of the options; return also whether its head is new."""
    require_segments(options)  # again, for a run that was stopped before its first checkpoint
    stored, params, report = load(source, head=PRETRAINING)
    decoder = params.decoder
    if stored.vocab_size != text.tokenizer.vocab_size:
        other = f"'{source}' was trained with {stored.vocab_size:,}; use the vocabulary that it came with."
        raise InputError(f"The vocabulary has {text.tokenizer.vocab_size:,} pieces, but {other}")
    config = stored
    if options.extend_positions:
        params = with_positions(params, options.extend_positions, source)
        config = params.config
    if config.P < options.longest:
        positions = f"the {config.P} positions of '{source}'"
        more = f"give it more with extend_positions={options.longest}"
        what = f"seq_length={options.longest!r} is longer than {positions}"
        message = f"{what}; choose shorter sequences, or {more}."
        raise InputError(message, seq_length=options.longest, extend_positions=options.longest)
    _require_same_shape(options, stored, source)
    new_head = any(name.startswith("cls.predictions") for name in report.missing)
    if new_head:
        params["mlm.output_bias"][...] = text.log_unigram()
        begins = "a new one begins with the frequencies of the text's pieces as its output bias"
        rate = options.rate_from(True, config)
        lacks = "no masked-LM head"
        if decoder is not None:
            lacks = "a masked-LM head whose decoder is not its word embeddings, which is not trained here"
        warn(f"'{source}' has {lacks}: {begins}, and all is trained at a rate of {rate:g}.")
    trained = config.trained_length
    if trained:
        copy_trained_positions(params, trained, options.longest)
        trained = max(trained, options.longest)
    fields = {"is_decoder": options.left_to_right, "trained_length": trained}
    config = BertConfig.from_dict(config.to_dict() | options.dropouts | fields)
    return Parameters(config, params.flat.astype(precision_for(options.dtype))), new_head


def _require_same_shape(options: PretrainOptions, stored: BertConfig, source: str) -> None:
    """Raise InputError if options give a trained model another shape than it has."""
    more = "leave it out or give more positions with `extend_positions`"
    shape = {  # option -> the model's value, the default of the option, and advice
        "hidden_act": (stored.hidden_act, PretrainOptions.hidden_act, "leave it out"),
        "max_positions": (stored.max_position_embeddings, POSITIONS, more),
    }
    for name, (value, default, advice) in shape.items():
        given = getattr(options, name)
        if given not in (value, default):
            problem = f"{name}={given!r} differs from the {value} of '{source}', which stays"
            raise InputError(f"{problem}; {advice}.", **{name: given})
