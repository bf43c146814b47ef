"""`PretrainOptions`: everything that determines a pre-training run."""

import dataclasses
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from minibert.base.errors import InputError
from minibert.base.options import (
    AT_MOST,
    COUNT,
    POSITIVE,
    RATE,
    REAL,
    SHARE,
    WHOLE,
    RunOptions,
    is_number,
    option,
)
from minibert.base.paths import path_of
from minibert.core.config import GELU_FORMS, BertConfig
from minibert.core.optim import KINDS
from minibert.data.corpus import LAYOUTS
from minibert.data.instances import InstanceOptions
from minibert.pretraining import recipes
from minibert.pretraining.recipes import FURTHER, MINUTES, SizeRecipe, Stage, parse_lengths

PAIRS_FROM = 64  # tokens; each half of a shorter sequence has hardly any context
POSITIONS = 512  # positions of a new model, as in the paper
MASKING = ("whole_word_mask", "masked_lm_prob", "mask_rates", "max_predictions_per_seq")
# Options that token shards determine.
IN_SHARDS = ("corpus", "layout", "column", "vocab", "vocab_size", "lower_case", "keep_accents", "segmented")


@dataclass
class PretrainOptions(RunOptions):
    """Everything that determines a pre-training run; stored in its folder as `training.json`.

    `None` means "what the recipe says", and `resolved` fills it in. The recipe is that of the size or, for
    weights from `model` without a size, `recipes.FURTHER`, with that model's dropout. Two options stay None
    until the run decides them: `seq_length`, where the speed has to be measured for `minutes`, and
    `learning_rate`, until it is known whether the weights from `model` include a masked-LM head. Two runs
    with equal options, engine, threads and number of steps end with the same bytes.

    `help(minibert.pretrain)` describes each option.

    Raises
    ------
    InputError
        When a value is out of range.
    """

    # text
    corpus: str | tuple[str, ...] = option(
        (), "text files, folders or globs", default="the books in the package"
    )
    _: KW_ONLY
    layout: str = option("auto", f"how the text is laid out: {', '.join(LAYOUTS)}")
    column: str = option("text", "the key (JSON lines) or column (tables) that has the text", metavar="NAME")
    vocab: str | None = option(None, "a vocab.txt or a folder with one", metavar="PATH", default="learn one")
    vocab_size: int = option(8192, "pieces to learn", WHOLE)
    lower_case: bool = option(
        True,
        "keep case and accents, also with `vocab`",
        flag="--cased",
        in_python="lower-case the text and strip accents",
    )
    keep_accents: bool = option(
        False,
        "lower-case, but keep accents and the vowel signs that are stripped with them, as in Hindi",
    )
    segmented: bool = option(
        False,
        "spaces separate the words, in Chinese too, so that pieces can be longer than one ideograph",
    )
    shards: str | None = option(
        None,
        "a folder that `minibert data` wrote, in place of a text; its vocabulary is used. The run reads the "
        "folder where it is, so don't move it",
        metavar="DIR",
        default="",
    )
    held_out: float = option(
        0.05,
        "share of the documents to hold out for evaluation; at least one document is held out, or two where "
        "next sentences are learnt",
        SHARE,
    )
    # model
    size: str | None = option(
        None,
        "tiny, mini, small, medium, base, large, or L-H-A for any number of layers, hidden size and heads",
        metavar="NAME",
        default="tiny",
    )
    model: str | None = option(
        None,
        "a trained BERT to train further: a run, RUN@STEP or a Hugging Face BERT; its shape and vocabulary "
        "are used, and `size` only chooses defaults",
        metavar="MODEL",
        default="",
    )
    hidden_act: str = option(
        "gelu", "gelu, with the error function, or gelu_new, its approximation by tanh", choices=GELU_FORMS
    )
    max_positions: int | None = option(
        None,
        "length of the longest sequence that the model will be able to read; at least `seq_length`",
        WHOLE,
        default=f"{POSITIONS}, or more where a sequence is longer",
    )
    dropout: float | None = option(None, "dropout rate of embeddings, sublayers and attention", RATE)
    unigram_bias: bool | None = option(
        None,
        "start the output bias at the log-frequencies of the pieces instead of zero",
        both_ways=True,
        default="by size",
    )
    # length of the run: at most one of the two
    minutes: float | None = option(
        None,
        "how long the command may take; the speed is measured first, and again during training, so that "
        "the schedule ends on time",
        POSITIVE,
        default=f"{MINUTES:g}",
    )
    steps: int | None = option(None, "number of updates, instead of `minutes`", WHOLE, default="")
    # batches and optimizer
    optimizer: str = "adamw"
    seq_length: str | None = option(
        None,
        "tokens in a sequence: one length, or several with their shares of the steps, such as the paper's "
        "128:0.9,512:0.1",
        metavar="LENGTHS",
        default="by size and by the number of tokens that the run will read, see below",
    )
    batch_size: int | None = option(
        None, "sequences in a step at the longest length; shorter sequences come in larger batches", WHOLE
    )
    learning_rate: float | None = option(None, "the highest learning rate", POSITIVE, flag="--lr")
    # instances (Table 8 and the ablations of the paper)
    masked_lm_prob: float = option(0.15, "share of the tokens to predict", REAL)
    mask_rates: tuple[float, float, float] = option(
        (0.8, 0.1, 0.1),
        "shares of these that are replaced by [MASK], left as they are, or replaced by a random token",
        (("three numbers", lambda x: len(x) == 3 and all(map(is_number, x))),),
        metavar="MASK,SAME,RND",
        numbers="share",
        default="0.8,0.1,0.1",
    )
    max_predictions_per_seq: int | None = option(
        None, "the most tokens to predict in a sequence", AT_MOST, default="`masked_lm_prob` of `seq_length`"
    )
    whole_word_mask: bool = option(False, "mask all pieces of a word, or none")
    dupe_factor: int = option(
        0, "0: new masks in every pass over the text; N: N fixed copies in turn, as in Google's code", COUNT
    )
    short_seq_prob: float = option(0.1, "share of the instances that get a random shorter length", REAL)
    next_sentence: bool = option(
        True,
        "leave out next-sentence prediction; automatic if hardly any document has two sentences",
        flag="--no-nsp",
        in_python="train next-sentence prediction, too, unless hardly any document has two sentences",
    )
    left_to_right: bool = option(False, "the paper's LTR ablation: predict every next word")
    # the run
    evaluations: int = option(
        10,
        "evaluations on the held-out text during training, in addition to the one at the end; short runs use "
        "less of that text; 0: none at all",
        COUNT,
    )
    keep: int = option(
        2, "checkpoints to keep; 0: all; RUN@1000 names the one of step 1000 as a model", COUNT
    )

    UNDECIDED = "by size"
    COMMAND = "pretrain"
    ALWAYS = ("corpus", "held_out", "masked_lm_prob")
    # The length of a run may differ too. Shards may have been moved: they are checked when they are opened.
    FREE = RunOptions.FREE | {"steps", "minutes", "evaluations", "shards"}

    def __post_init__(self) -> None:
        self._make_plain()
        several = isinstance(self.corpus, Iterable) and not isinstance(self.corpus, str)
        paths: Iterable[Any] = self.corpus if several else [self.corpus]
        names = [str(path) for path in paths]
        for name in names:
            path_of(name, "corpus")  # refuses ""
        object.__setattr__(self, "corpus", tuple(os.path.expanduser(name) for name in names))
        for name in ("vocab", "model", "shards"):
            path = getattr(self, name)
            if path is not None:
                path_of(path, name)  # refuses what is not a path
                # A string, with any slash at its end: resuming compares it with what is stored.
                object.__setattr__(self, name, os.path.expanduser(path))
        if isinstance(self.mask_rates, list):  # as read from JSON
            object.__setattr__(self, "mask_rates", tuple(self.mask_rates))
        self._check_what_others_bring()
        if self.size is not None:
            BertConfig.from_size(self.size)  # raises if it is not a size
        if self.steps is not None and self.minutes is not None:
            both: dict[str, Any] = {"steps": self.steps, "minutes": self.minutes}
            message = f"steps={self.steps} and minutes={self.minutes} are both given; give one of them."
            raise InputError(message, **both)
        self._check()
        if self.seq_length is not None:
            object.__setattr__(self, "seq_length", str(self.seq_length))
        for length, _ in parse_lengths(self.seq_length or "128"):
            self.instance_options(length)  # raises if no instance can be made with them

    def _check_what_others_bring(self) -> None:
        """Raise InputError for options that shards, a vocabulary or trained weights already determine."""
        if self.shards is not None:
            given = [name for name in IN_SHARDS if getattr(self, name) != getattr(PretrainOptions, name)]
            if given:
                arguments = {name: getattr(self, name) for name in given}
                listed = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
                what = f"shards={self.shards!r} brings its text and vocabulary"
                message = f"{what}, so {listed} can't be given as well; leave one of them out."
                raise InputError(message, shards=self.shards, **arguments)
            object.__setattr__(self, "shards", os.path.abspath(self.shards))  # for resuming from anywhere
        source = "vocab" if self.vocab else "model"
        if (self.vocab or self.model) and self.vocab_size != PretrainOptions.vocab_size:
            both = {"vocab_size": self.vocab_size, source: getattr(self, source)}
            bringing = f"{source}={both[source]!r}"
            what = f"vocab_size={self.vocab_size} is for a vocabulary that is learnt"
            raise InputError(f"{what}, and {bringing} brings one; leave one of them out.", **both)
        if self.model and self.unigram_bias:
            what = f"unigram_bias=True sets the output bias, and model={self.model!r} brings a trained one"
            raise InputError(f"{what}; leave one of them out.", unigram_bias=True, model=self.model)

    def resolved(self, model: BertConfig | None = None) -> "PretrainOptions":
        """Return a copy in which the recipe replaces every `None`.

        Parameters
        ----------
        model : BertConfig or None, default None
            Configuration of the trained weights, whose dropout is kept; None for the recipe's dropout.
        """
        recipe = self.recipe
        dropouts: dict[str, Any] = {"dropout": recipe.dropout}
        if recipe is FURTHER and model is not None:
            dropouts = self.dropouts_of(model)
        answers: dict[str, Any] = {
            "seq_length": recipe.seq_length,
            "batch_size": recipe.batch_size,
            "accumulate": recipe.accumulate,
            "warmup": recipe.warmup,
            "size": None if self.model else "tiny",
            "learning_rate": None if recipe is FURTHER else self.rate_from(),
            **dropouts,
            "unigram_bias": not recipe.paper and not self.model,
            "max_positions": POSITIONS if self.model else max(POSITIONS, self.longest),
            "bias_correction": self.optimizer != "adamw" or not recipe.paper,
            "google_decay": self.optimizer == "lamb" or recipe.paper,
        }
        if self.steps is None and self.minutes is None:
            answers["minutes"] = MINUTES
        if self.steps and not recipe.seq_length:
            sequences = self.steps * (self.batch_size or recipe.batch_size)
            answers["seq_length"] = self.schedule_for(lambda longest: sequences * longest)
        return self.with_defaults(answers)

    @classmethod
    def configured(cls, path: str | Path, given: dict[str, Any]) -> dict[str, Any]:
        """Return the fields in a file, as `RunOptions.configured` does.

        Runs store the number of positions that they settled on. The usual number is left out, so that a
        longer sequence among the other fields still gets the positions that it needs.

        Parameters
        ----------
        path : str or path
            The file.
        given : dict
            Fields from elsewhere, which take precedence.

        Returns
        -------
        dict
            Values by field name.
        """
        chosen = super().configured(path, given)
        if chosen.get("max_positions") == POSITIONS and "max_positions" not in given:
            del chosen["max_positions"]
        return chosen

    def check_positions(self) -> None:
        """Check that a new model has as many positions as its sequences need.

        Raises
        ------
        InputError
            When it has fewer, or when `extend_positions` is given, which is for a trained model.
        """
        if self.extend_positions and not self.model:
            advice = "name one with `model`, or give `max_positions`."
            message = f"extend_positions={self.extend_positions!r} is for a trained model; {advice}"
            raise InputError(message, extend_positions=self.extend_positions)
        if not self.model and self.max_positions is not None and self.max_positions < self.longest:
            less = f"less than the longest sequence, {self.longest} tokens; give at least {self.longest}"
            what = f"max_positions={self.max_positions!r} is {less}"
            message = f"{what}, or shorter sequences with `seq_length`."
            raise InputError(message, max_positions=self.max_positions)

    def check_masking(self) -> None:
        """Check that no option chooses what is masked if every next word is predicted.

        Raises
        ------
        InputError
            When such an option is given together with `left_to_right`, with which it would be ignored.
        """
        for name in MASKING:
            value = getattr(self, name)
            if self.left_to_right and value != getattr(PretrainOptions, name):
                why = "but left_to_right=True predicts every word; leave one of them out."
                both = {name: value, "left_to_right": True}
                raise InputError(f"{name}={value!r} chooses what is masked, {why}", **both)

    def schedule_for(self, tokens: Callable[[int], float]) -> str:
        """Return the `seq_length` to use if none is given.

        Parameters
        ----------
        tokens : callable
            As for `recipes.schedule_for`.
        """
        return self.recipe.seq_length or recipes.schedule_for(tokens, self.max_positions or POSITIONS)

    def decided_as(self, stored: "PretrainOptions") -> "PretrainOptions":
        """Return a copy with the values that an earlier run decided while running.

        Parameters
        ----------
        stored : PretrainOptions
            The options in the `training.json` of that run.
        """
        by_run: tuple[str, ...] = ("learning_rate", "seq_length", "max_positions")
        if self.dropout is None:  # that of the model, which may have changed or moved
            by_run += ("dropout", "attention_dropout")
        undecided = [name for name in by_run if getattr(self, name) is None]
        if self.next_sentence and not stored.next_sentence:  # for lack of documents with two sentences
            undecided.append("next_sentence")
        decided = {name: getattr(stored, name) for name in undecided}
        return dataclasses.replace(self, **decided)

    def rate_from(self, new_head: bool = False, model: BertConfig | None = None) -> float:
        """Return the given learning rate, or the recipe's.

        Parameters
        ----------
        new_head : bool, default False
            Whether the weights of `model` have no trained masked-LM head.
        model : BertConfig or None, default None
            Their shape; None for that of BERT base.
        """
        usual = self.recipe.learning_rate
        if self.recipe is FURTHER:
            usual = recipes.further_rate(model or BertConfig(), new_head)
        factor = KINDS[self.optimizer].RATE
        return self.learning_rate or usual * factor

    @property
    def recipe(self) -> SizeRecipe:
        """Return the recipe of the size; see `recipes.recipe_for`."""
        return FURTHER if self.model and self.size is None else recipes.recipe_for(self.size or "tiny")

    @property
    def lengths(self) -> list[tuple[int, float]]:
        """Return the lengths and their shares of the steps; until decided, those of the longest runs."""
        return parse_lengths(self.seq_length or self.schedule_for(lambda longest: math.inf))

    @property
    def longest(self) -> int:
        """Return the length of the longest sequence in the schedule."""
        return max(length for length, _ in self.lengths)

    @property
    def tokens_per_step(self) -> int:
        """Return the number of tokens in a step of full sequences, the most that a step of any stage has."""
        assert self.batch_size is not None  # since the options were resolved
        return self.batch_size * self.longest

    @property
    def pairs(self) -> bool:
        """Return whether next-sentence prediction is part of the task."""
        return self.next_sentence and not self.left_to_right

    def stages(self, total_steps: int) -> list[Stage]:
        """Divide `total_steps` into the stages of the schedule, with rounded borders.

        Parameters
        ----------
        total_steps : int
            Number of steps of the schedule.

        Returns
        -------
        list of Stage
            The stages, without empty ones.
        """
        lengths, shares = zip(*self.lengths, strict=True)
        inner_borders = [round(total_steps * share) for share in accumulate(shares[:-1])]
        stages = []
        for length, (begin, end) in zip(lengths, pairwise([0, *inner_borders, total_steps]), strict=True):
            if end > begin:
                stages.append(Stage(length, begin, end))
        return stages

    def pairs_at(self, seq_length: int) -> bool:
        """Return whether sequences of a length are pairs; in early stages with short sequences they are not.

        Parameters
        ----------
        seq_length : int
            Number of tokens in a sequence.
        """
        last = self.seq_length is None or seq_length == self.longest
        return self.pairs and (last or seq_length >= PAIRS_FROM)

    def instance_options(self, seq_length: int) -> InstanceOptions:
        """Return the options for the instances of one stage.

        Parameters
        ----------
        seq_length : int
            Number of tokens in a sequence of the stage.
        """
        values: dict[str, Any] = {"seq_length": seq_length, "next_sentence": self.pairs_at(seq_length)}
        for field in dataclasses.fields(InstanceOptions):
            if field.name not in values:
                values[field.name] = getattr(self, field.name)
        return InstanceOptions(**values)

    def model_config(self, vocab_size: int) -> BertConfig:
        """Return the shape of the model.

        Parameters
        ----------
        vocab_size : int
            Number of pieces in the vocabulary.
        """
        assert self.size is not None  # since the options were resolved
        return BertConfig.from_size(
            self.size,
            vocab_size=vocab_size,
            max_position_embeddings=max(self.max_positions or POSITIONS, self.longest),
            hidden_act=self.hidden_act,
            is_decoder=self.left_to_right,
            **self.dropouts,
        )

    @staticmethod
    def _instead(given: dict[str, Any]) -> dict[str, Any]:
        """Let given steps replace stored minutes, or the reverse, and given shards replace a stored text."""
        if given.get("shards"):
            given = {name: getattr(PretrainOptions, name) for name in IN_SHARDS} | given
        if "steps" in given:
            return {"minutes": None, **given}
        return {"steps": None, **given} if "minutes" in given else given
