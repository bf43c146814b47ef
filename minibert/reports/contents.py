"""Types of predictions, evaluations and reports of runs, for editors and type checkers.

All of them are plain dictionaries that can be written as JSON. A stored report is checked against its type
when it is read (`base.json_files.schema_error`).
"""

from typing import Any, NotRequired, TypedDict


class Prediction(TypedDict, total=False):
    """What a model predicts for a text or a pair of texts: a class, several classes or a number."""

    label: str  # the most probable class
    labels: list[str]  # the classes that apply, for a task where several may
    probabilities: dict[str, float]  # class -> probability
    value: float  # the number, for a task of numbers


class TaggedWord(TypedDict):
    """A word of a text, `text[begin:end]`, and its tag."""

    word: str
    tag: str
    begin: int  # index of its first character
    end: int  # index after its last character


class Entity(TypedDict):
    """An entity of one or more words, `text[begin:end]`."""

    type: str
    text: str
    begin: int
    end: int


class TaggedText(TypedDict):
    """The tags that a model predicts for the words of a text, and the entities that they form."""

    text: str
    words: list[TaggedWord]
    entities: list[Entity]  # empty if the model's tags don't mark entities


class Span(TypedDict):
    """A possible answer, `paragraph[begin:end]`; "" and None stand for no answer."""

    text: str
    begin: int | None  # index of its first character
    end: int | None  # index after its last character
    start_logit: float
    end_logit: float
    probability: float  # normalised over the listed answers


class AnsweredQuestion(TypedDict):
    """A model's answer to a question, and the others that it considered."""

    text: str  # "" if it finds no answer
    begin: int | None
    end: int | None
    probability: float
    null_odds: NotRequired[float]  # score of no answer minus that of the best answer, if there may be none
    n_best: list[Span]  # the most probable first


class Baseline(TypedDict):
    """Metrics of a simple baseline."""

    scores: dict[str, float]
    macro_f1: float


class Majority(Baseline):
    """Metrics of predicting the same class, or classes, for every example."""

    label: str


class Constant(TypedDict):
    """Metrics of predicting the same number for every example."""

    value: float  # the mean of the examples' numbers
    scores: dict[str, float]
    is_beaten: bool  # whether the model is better, by a bootstrap


class Baselines(TypedDict, total=False):
    """Baselines to compare the metrics with; each is there if it applies to the task."""

    baselines: dict[str, dict[str, float]]
    macro_f1: float  # of the model
    classes: dict[str, int]  # class -> number of examples
    majority: Majority
    bag_of_words: Baseline
    untuned: dict[str, float]  # scores with a threshold of one half
    thresholds: dict[str, float]  # class -> its threshold, a probability
    constant: Constant


class Truncated(TypedDict, total=False):
    """What was cut off texts that are too long."""

    truncated: dict[str, Any]


class Evaluation(Baselines, Truncated):
    """Metrics of a fine-tuned model on some examples."""

    task: str
    title: str
    metric: str  # name of the main metric, by which models of the task are chosen
    scores: dict[str, float]
    interval: list[float]  # both ends of the main metric's 95% interval
    interval_method: str
    examples: int  # number of examples
    labels: list[str]
    mistakes: list[dict[str, Any]]  # the worst first
    split: NotRequired[str]  # of examples that were read from files
    source: NotRequired[str]  # the file or folder of these, and after a comma the split if it is a part
    models: NotRequired[list[str]]  # the models whose predictions were averaged


class PieceFacts(TypedDict):
    """How well a vocabulary suits a text."""

    unknown: float  # share of [UNK]
    pieces_a_word: float
    vocabulary: int  # number of pieces
    lines: NotRequired[int]  # lines of a corpus that were looked at for repetitions
    repeated: NotRequired[float]  # share of them, by tokens, that were there before


class LabelFacts(TypedDict):
    """How the numbers lie that a model was trained to predict."""

    mean: float
    scale: float  # standard deviation
    farthest: float  # largest distance from the mean, in standard deviations


class FinetuneReport(Evaluation):
    """The report of a fine-tuning: metrics of its best epoch, and the costs."""

    best_epoch: float
    best_step: int
    parameters: int
    train_examples: int
    train_tasks: dict[str, int]
    data_crc32: NotRequired[int]  # checksum of labels, training and dev examples
    dev_crc32: NotRequired[int]  # checksum of the dev examples
    train_classes: NotRequired[dict[str, int]]
    fresh: NotRequired[list[str]]  # parameters that the model lacked, so that they were initialised
    feature_based: NotRequired[str]  # the frozen layers that LSTMs read
    width: NotRequired[int]  # hidden size of these LSTMs
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
    text: NotRequired[PieceFacts]  # of the first training examples
    targets: NotRequired[LabelFacts]  # if numbers were standardised
    runs: NotRequired[list[dict[str, Any]]]  # the runs of a sweep
    settings: NotRequired[list[dict[str, Any]]]  # mean and s.d. of each setting of a sweep
    batch_size: NotRequired[int]  # if a sweep varies it
    epochs: NotRequired[float]  # if a sweep varies it
    folder: str
    page: str


class HeldOutMetrics(TypedDict):
    """Metrics of a pre-trained model on held-out text; losses are in nats."""

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


class HeldOutBefore(TypedDict):
    """Metrics of trained weights on held-out text, before they were trained further."""

    loss: float  # nats
    accuracy: float
    next_accuracy: float | None
    targets: int  # the same as those at the end


class FilledGap(TypedDict):
    """Guesses for a gap in a text, the most probable first, and the original word if it is known."""

    text: str
    answer: str | None
    guesses: list[tuple[str, float]]


class PretrainReport(TypedDict):
    """The report of a pre-training."""

    held_out: HeldOutMetrics | None
    held_out_before: HeldOutBefore | None  # None unless the run began with trained weights
    left_to_right: bool
    size: str
    parameters: int
    vocab_size: int
    steps: int
    planned_steps: int
    ended_early: NotRequired[bool]  # whether `on_log` ended it before its last step
    stages: list[tuple[int, int]]
    trained_length: int
    tokens: int
    engine: str
    dtype: str
    cores: int
    training_seconds: float
    seconds: float
    examples: list[FilledGap]
    text: NotRequired[PieceFacts]
    new_head: NotRequired[bool]  # whether the model that it began with had no masked-LM head
    crc32: NotRequired[dict[str, int]]  # checksums of the model's files, by name
    folder: str
    page: str | None


class ExportReport(TypedDict):
    """What `export` read, changed and wrote."""

    source: str  # the file of the weights
    layers: int
    hidden_size: int
    heads: int
    vocab_size: int
    head: str  # its kind; "none" for an encoder alone
    labels: list[str]
    missing: list[str]  # tensors that the model lacks, and that are left out
    unused: list[str]  # tensors of the file that are no part of the model
    notes: list[str]  # sentences about what was changed, added or guessed
    written: dict[str, int]  # size of each file in bytes, by its path in the folder
