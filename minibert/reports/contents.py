"""What predictions, evaluations and reports of runs hold, as types for editors and type checkers.

All of them are plain dictionaries that JSON can say. A report of an earlier version may lack some fields;
what has to be in a stored one is checked where it is read (`results.FIELDS`, `api.runs.PRETRAINED`).
"""

from typing import Any, NotRequired, TypedDict


class Prediction(TypedDict, total=False):
    """What a model says of a text or pair of texts: a class, classes or a number."""

    label: str  # the likeliest class
    labels: list[str]  # those that apply, where several may
    probabilities: dict[str, float]  # of each class
    value: float


class TaggedWord(TypedDict):
    """A word of a text and its tag."""

    word: str
    tag: str
    begin: int  # its first character
    end: int  # the one behind its last


class Entity(TypedDict):
    """A chunk of words that is an entity, as `text[begin:end]`."""

    type: str
    text: str
    begin: int
    end: int


class TaggedText(TypedDict):
    """What a tagger says of a text."""

    text: str
    words: list[TaggedWord]
    entities: list[Entity]  # [] where the model's tags are not those of entities


class Span(TypedDict):
    """A possible answer, as it stands in its paragraph; no answer is "" at no place."""

    text: str
    begin: int | None  # its first character
    end: int | None  # the one behind its last
    start_logit: float
    end_logit: float
    probability: float  # among all that are listed


class AnsweredQuestion(TypedDict):
    """What a model answers, and what else it considered."""

    text: str  # "" where it finds no answer
    begin: int | None
    end: int | None
    probability: float
    null_odds: NotRequired[float]  # how much better no answer is than the best one, where there may be none
    n_best: list[Span]  # the likeliest first


class Baseline(TypedDict):
    """Metrics of answers that need no BERT."""

    label: NotRequired[str]  # which is the answer to everything
    scores: dict[str, float]
    macro_f1: float


class Constant(TypedDict):
    """What predicting one number for every example scores."""

    value: float  # the mean of the examples' numbers
    scores: dict[str, float]
    is_beaten: bool  # by the model, as far as a bootstrap tells


class Compared(TypedDict, total=False):
    """What metrics are to be read beside, each where the task has it."""

    baselines: dict[str, dict[str, float]]
    macro_f1: float
    classes: dict[str, int]  # examples of each
    majority: Baseline
    bag_of_words: Baseline
    untuned: dict[str, float]
    constant: Constant


class Truncated(TypedDict, total=False):
    """What was cut of texts that are too long."""

    truncated: dict[str, Any]


class Evaluation(Compared, Truncated):
    """Metrics of a fine-tuned model on some examples."""

    task: str
    title: str
    metric: str  # the one that models of the task are chosen by
    scores: dict[str, float]
    interval: list[float]  # 95% of the metric: its two ends
    interval_method: str
    examples: int
    labels: list[str]
    mistakes: list[dict[str, Any]]  # the worst first
    split: NotRequired[str]  # of files
    models: NotRequired[list[str]]  # which were averaged


class FinetuneReport(Evaluation):
    """What a run of fine-tuning reports: the metrics of its best epoch, and what it took."""

    best_epoch: float
    best_step: int
    parameters: int
    train_examples: int
    train_tasks: dict[str, int]
    train_classes: NotRequired[dict[str, int]]
    fresh: NotRequired[list[str]]  # parameters that the model came without
    feature_based: NotRequired[str]  # the layers that LSTMs read
    width: NotRequired[int]  # of these LSTMs
    engine: str
    dtype: str
    cores: int
    steps: int
    tokens: int
    learning_rate: float
    seed: int
    training_seconds: float
    seconds: float
    crc32: dict[str, int]
    runs: NotRequired[list[dict[str, Any]]]  # of a sweep
    settings: NotRequired[list[dict[str, Any]]]
    batch_size: NotRequired[int]  # where a sweep tries several
    epochs: NotRequired[float]
    folder: str
    page: str


class HeldOutMetrics(TypedDict):
    """What pre-training measures on text that was held out; losses in nats."""

    loss: float
    standard_error: float | None
    unigram: float
    text_unigram: float
    shuffled_loss: float | None
    nats_under_unigram: float
    perplexity: float
    accuracy: float
    next_loss: float | None
    next_accuracy: float | None
    next_majority: float | None
    targets: int
    sequences: int
    tokens: int
    documents: int | None


class FilledGap(TypedDict):
    """Guesses for a gap in a text, the likeliest first, and what stood there, where that is known."""

    text: str
    answer: str | None
    guesses: list[tuple[str, float]]


class PretrainReport(TypedDict):
    """What a run of pre-training reports."""

    held_out: HeldOutMetrics | None
    left_to_right: bool
    size: str
    parameters: int
    vocab_size: int
    steps: int
    planned_steps: int
    stages: list[tuple[int, int]]
    trained_length: int
    tokens: int
    engine: str
    dtype: str
    cores: int
    training_seconds: float
    seconds: float
    examples: list[FilledGap]
    folder: str
    page: str | None
