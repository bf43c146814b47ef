"""The paper's tables: what each varies, measures and claims (Devlin et al. 2019, sections 4, 5 and C).

A table consists of rows (a pre-trained model and how it is fine-tuned), columns (a task, or the held-out
text), and orderings (the claims that the paper makes from it). To add a row, write a `Row`; to add a
pre-training, an entry of `MODELS`.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

NOTHING: Mapping[str, Any] = MappingProxyType({})
BERT, UNTRAINED = "bert", "untrained"
MIXES = {  # shares of [MASK], the unchanged token, a random token
    BERT: (0.8, 0.1, 0.1),
    "mask100": (1.0, 0.0, 0.0),
    "mask80-random20": (0.8, 0.0, 0.2),
    "mask80-same20": (0.8, 0.2, 0.0),
    "same20-random80": (0.0, 0.2, 0.8),
    "random100": (0.0, 0.0, 1.0),
}
# The paper's shapes, as layers-hidden-heads.
SHAPES = ("3-768-12", "6-768-3", "6-768-12", "12-768-12", "12-1024-16", "24-1024-16")
# Models to pre-train: name -> options in addition to those of the scale. `shape` is one of SHAPES, which the
# scale shrinks.
MODELS: dict[str, Mapping[str, Any]] = {
    UNTRAINED: {},
    "no-nsp": {"next_sentence": False},
    "ltr": {"left_to_right": True},
    **{name: {"mask_rates": mix} for name, mix in MIXES.items()},
    **{f"size-{shape}": {"shape": shape} for shape in SHAPES if shape != "12-768-12"},
}


class Row(NamedTuple):
    """A row of a table: a model, and how it is fine-tuned."""

    title: str
    model: str  # a key of MODELS
    paper: Mapping[str, float] = NOTHING  # name of a column -> the paper's figure
    finetuning: Mapping[str, Any] = NOTHING  # options in addition to those of the scale and task
    share: float = 1.0  # one of SHARES; below 1, the checkpoint after that share of the pre-training's steps


class Column(NamedTuple):
    """A column of a table: what is measured of every row."""

    name: str
    title: str
    task: str  # a key of `scales.ROLES`, or "held-out" for the loss on masked words
    finetuning: Mapping[str, Any] = NOTHING  # options that take precedence over the row's
    split: str = "dev"

    @property
    def held_out(self) -> bool:
        """Return whether the column measures the loss on held-out text instead of a task's metric."""
        return self.task == "held-out"


class Ordering(NamedTuple):
    """A claim: one row is better than another in a column."""

    better: str  # title of a row
    worse: str  # title of a row
    column: str  # name of a column
    why: str = ""  # the paper's argument


class Table(NamedTuple):
    """A table of the paper."""

    name: str
    title: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    orderings: tuple[Ordering, ...]
    note: str = ""
    averaged: bool = False  # whether each row has an average over the columns, as in GLUE


HELD_OUT = Column("ppl", "LM (ppl)", "held-out")
INFERENCE = Column("mnli", "MNLI-m (acc)", "mnli")
PARAPHRASE = Column("mrpc", "MRPC (acc)", "mrpc")
QUESTIONS = Column("qnli", "QNLI (acc)", "qnli")
SENTIMENT = Column("sst2", "SST-2 (acc)", "sst2")
SPANS = Column("squad", "SQuAD (F1)", "squad")
NAMES = Column("ner", "NER (F1)", "ner")
FEATURES = Column("ner-features", "NER, features (F1)", "ner", {"feature_based": "concat-last-4"})
NO_TRAINING = Row("Untrained", UNTRAINED)


def _row(title: str, model: str, columns: str, *figures: float, **finetuning: Any) -> Row:
    """Return a row with the paper's figures for some columns, whose names are given in one string."""
    paper = dict(zip(columns.split(), figures, strict=True))
    return Row(title, model, paper, finetuning)


def _each(better: str, worse: str, columns: str, why: str) -> Iterator[Ordering]:
    """Yield the same claim for each of some columns, whose names are given in one string."""
    return (Ordering(better, worse, column, why) for column in columns.split())


_TASKS = "mnli qnli mrpc sst2 squad"
TABLE5 = Table(
    "table5",
    "Pre-training tasks",
    (
        _row("BERT", BERT, _TASKS, 84.4, 88.4, 86.7, 92.7, 88.5),
        _row("No NSP", "no-nsp", _TASKS, 83.9, 84.9, 86.5, 92.6, 87.9),
        _row("LTR & No NSP", "ltr", _TASKS, 82.1, 84.3, 77.5, 92.1, 77.8),
        _row("+ BiLSTM", "ltr", _TASKS, 82.1, 84.1, 75.7, 91.6, 84.9, bilstm=True),
        NO_TRAINING,
    ),
    (INFERENCE, QUESTIONS, PARAPHRASE, SENTIMENT, SPANS, NAMES),
    (
        *_each("BERT", "No NSP", "mnli qnli", "next sentences help a task of pairs"),
        Ordering("No NSP", "LTR & No NSP", "ner", "both directions help where words are tagged"),
        Ordering("No NSP", "LTR & No NSP", "squad", "both directions help where spans are found"),
        Ordering("No NSP", "LTR & No NSP", "mrpc", "both directions help most with few examples"),
        Ordering("No NSP", "LTR & No NSP", "sst2", "both directions help sentences, a little"),
        *_each("+ BiLSTM", "LTR & No NSP", "ner squad", "a BiLSTM gives words their right context back"),
        Ordering("BERT", "Untrained", "ner", "pre-training teaches something"),
    ),
)
_SIZES = "ppl mnli mrpc sst2"
TABLE6 = Table(
    "table6",
    "Size of the model",
    (
        _row("3 × 768, 12 heads", "size-3-768-12", _SIZES, 5.84, 77.9, 79.8, 88.4),
        _row("6 × 768, 3 heads", "size-6-768-3", _SIZES, 5.24, 80.6, 82.2, 90.7),
        _row("6 × 768, 12 heads", "size-6-768-12", _SIZES, 4.68, 81.9, 84.8, 91.3),
        _row("12 × 768, 12 heads", BERT, _SIZES, 3.99, 84.4, 86.7, 92.9),
        _row("12 × 1024, 16 heads", "size-12-1024-16", _SIZES, 3.54, 85.7, 86.9, 93.3),
        _row("24 × 1024, 16 heads", "size-24-1024-16", _SIZES, 3.23, 86.6, 87.8, 93.7),
        NO_TRAINING,
    ),
    (HELD_OUT, INFERENCE, PARAPHRASE, SENTIMENT),
    (
        Ordering("6 × 768, 12 heads", "3 × 768, 12 heads", "ppl", "more layers"),
        Ordering("6 × 768, 12 heads", "6 × 768, 3 heads", "ppl", "more heads"),
        Ordering("12 × 768, 12 heads", "6 × 768, 12 heads", "ppl", "more layers"),
        Ordering("12 × 1024, 16 heads", "12 × 768, 12 heads", "ppl", "more units"),
        Ordering("24 × 1024, 16 heads", "12 × 1024, 16 heads", "ppl", "more layers"),
        *_each("24 × 1024, 16 heads", "3 × 768, 12 heads", _SIZES, "the largest and the smallest"),
    ),
    "Rows have the names of the paper's shapes; what each was shrunk to stands in the scale.",
)
_NER = "ner ner-test"
TABLE7 = Table(
    "table7",
    "Named entities by fine-tuning, and from frozen layers",
    (
        _row("Fine-tuning", BERT, _NER, 96.4, 92.4),
        _row("Embeddings", BERT, "ner", 91.0, feature_based="embeddings"),
        _row("Second-to-last hidden", BERT, "ner", 95.6, feature_based="second-to-last"),
        _row("Last hidden", BERT, "ner", 94.9, feature_based="last"),
        _row("Weighted sum, last four", BERT, "ner", 95.9, feature_based="sum-last-4"),
        _row("Concatenation, last four", BERT, "ner", 96.1, feature_based="concat-last-4"),
        _row("Weighted sum, all layers", BERT, "ner", 95.5, feature_based="sum-all"),
        NO_TRAINING,
    ),
    (NAMES._replace(title="Dev F1"), Column("ner-test", "Test F1", "ner", split="test")),
    (
        Ordering("Fine-tuning", "Concatenation, last four", "ner", "fine-tuning is ahead of all features"),
        Ordering("Concatenation, last four", "Embeddings", "ner", "context is in the layers"),
        Ordering("Concatenation, last four", "Last hidden", "ner", "four layers tell more than the last"),
        Ordering("Second-to-last hidden", "Last hidden", "ner", "the last layer is bent to the masks"),
    ),
)
_MASKS = "mnli ner ner-features"
TABLE8 = Table(
    "table8",
    "Masking: shares of [MASK], the same token, a random one",
    (
        _row("80% 10% 10%", BERT, _MASKS, 84.2, 95.4, 94.9),
        _row("100% 0% 0%", "mask100", _MASKS, 84.3, 94.9, 94.0),
        _row("80% 0% 20%", "mask80-random20", _MASKS, 84.1, 95.2, 94.6),
        _row("80% 20% 0%", "mask80-same20", _MASKS, 84.4, 95.2, 94.7),
        _row("0% 20% 80%", "same20-random80", _MASKS, 83.7, 94.8, 94.6),
        _row("0% 0% 100%", "random100", _MASKS, 83.6, 94.9, 94.6),
        NO_TRAINING,
    ),
    (INFERENCE, NAMES, FEATURES),
    (
        Ordering("80% 10% 10%", "100% 0% 0%", "ner-features", "only [MASK] hurts frozen features"),
        Ordering("80% 10% 10%", "0% 0% 100%", "ner-features", "only random tokens hurt frozen features"),
        Ordering("80% 10% 10%", "0% 0% 100%", "mnli", "only random tokens hurt pairs"),
        Ordering("80% 10% 10%", "100% 0% 0%", "ner", "only [MASK] hurts less where all is fine-tuned"),
    ),
)
SHARES = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0)  # shares of the steps at which Figure 5 measures
FIGURE5 = Table(
    "figure5",
    "Steps of pre-training",
    tuple(
        Row(f"{title}, {share:.0%} of the steps", model, share=share)
        for title, model in (("MLM", BERT), ("LTR", "ltr"))
        for share in SHARES
    )
    + (NO_TRAINING,),
    (INFERENCE, NAMES),
    (
        Ordering("LTR, 5% of the steps", "MLM, 5% of the steps", "mnli", "MLM starts slower"),
        *_each("MLM, 100% of the steps", "LTR, 100% of the steps", "mnli ner", "and passes LTR"),
        Ordering("MLM, 100% of the steps", "MLM, 40% of the steps", "mnli", "more steps still help"),
    ),
    "A checkpoint on the way of a falling learning rate is not the end of a shorter run.",
)
_GLUE = "mnli qqp qnli sst2 cola stsb mrpc rte"  # the paper's figures are those of BERT BASE on test
TABLE1 = Table(
    "table1",
    "GLUE",
    (_row("BERT", BERT, _GLUE, 84.6, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4), NO_TRAINING),
    (
        INFERENCE,
        Column("qqp", "QQP (acc)", "qqp"),
        QUESTIONS,
        SENTIMENT,
        Column("cola", "CoLA (Matthews)", "cola"),
        Column("stsb", "STS-B (Spearman)", "stsb"),
        PARAPHRASE,
        Column("rte", "RTE (acc)", "rte"),
    ),
    tuple(_each("BERT", "Untrained", _GLUE, "pre-training teaches something")),
    "The paper's figures are of GLUE's test server, F1 for QQP and MRPC; ours are of dev.",
    averaged=True,
)
TABLES = {table.name: table for table in (TABLE1, TABLE5, TABLE6, TABLE7, TABLE8, FIGURE5)}
