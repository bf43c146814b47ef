"""The metrics of a pre-trained model on held-out text: how each is written in a terminal and in tables."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from minibert.base.terminal import counted, printable, some_of


class Metric(NamedTuple):
    """How a metric of held-out text is written."""

    name: str  # in a report
    label: str  # in a table
    line: str  # in a terminal; "": none of its own
    form: str  # format of the number
    unit: str = ""  # after the number in a terminal


METRICS = (
    Metric("loss", "loss, nats", "{loss} on {objective}", ".3f", " nats"),
    Metric("standard_error", "its standard error, by document", "", ".3f"),
    Metric("unigram", "unigram entropy of the targets: the best guess without context",
           "  unigram entropy of these targets", ".3f", " nats"),
    Metric("text_unigram", "unigram entropy of the whole text",
           "  unigram entropy of the whole text", ".3f", " nats"),
    Metric("shuffled_loss", "loss with the context shuffled", "  with its context shuffled", ".3f", " nats"),
    Metric("perplexity", "perplexity", "  perplexity", ".1f"),
    Metric("accuracy", "accuracy", "  accuracy", ".1%"),
    Metric("next_accuracy", "next-sentence accuracy", "Next-sentence accuracy", ".1%"),
    Metric("next_majority", "always the more frequent answer", "  always the more frequent answer", ".1%"),
)  # fmt: skip
METRIC_TYPES = {metric.name: float | None for metric in METRICS}  # in reports of all versions


def held_out_rows(
    metrics: Mapping[str, Any], before: Mapping[str, Any] | None = None
) -> list[tuple[str, str]]:
    """Return the rows of a table of metrics, without those that are None.

    Parameters
    ----------
    metrics : dict
        `held_out` of a report: all fields of METRICS, and `targets`, the number of predicted tokens.
    before : dict, optional
        `held_out_before` of the report: metrics before further training.

    Returns
    -------
    list of (str, str)
        A label for each number, and the number as text.
    """
    rows = [("targets", f"{metrics['targets']:,}")]
    for metric in METRICS:
        for when, measured in (("", metrics), (", before this training", before or {})):
            value = measured.get(metric.name)
            if value is not None:
                rows.append((metric.label + when, f"{value:{metric.form}}"))
    if before:
        rows.append(("by this training", change_text(metrics, before)))
    return rows


def held_out_text(
    metrics: Mapping[str, Any],
    corpus: Sequence[str] = (),
    before: Mapping[str, Any] | None = None,
) -> str:
    """Format the metrics of a text for a terminal.

    Parameters
    ----------
    metrics : dict
        As `HeldOut.to_dict()` returns them.
    corpus : sequence of str, default ()
        What was measured: files, folders or globs, of which nobody knows whether the model has read them; by
        default the documents that its run held out.
    before : dict, optional
        Metrics of the same targets before training: `held_out_before` of a report.

    Returns
    -------
    str
        Several lines.
    """
    loss = metrics["loss"]
    remarks = {"loss": counted(metrics["targets"], "target") + error_text(metrics)}
    for name in ("unigram", "text_unigram"):
        entropy = metrics[name]
        side = "under" if loss <= entropy else "over"
        remarks[name] = f"the model is {abs(entropy - loss):.2f} {side} it"
    loss_name = "Loss" if corpus else "Held-out loss"
    objective = "next words" if metrics["shuffled_loss"] is None else "[MASK] positions"
    rows = []
    for metric in METRICS:
        value = metrics.get(metric.name)
        if metric.line and value is not None:
            label = metric.line.format(loss=loss_name, objective=objective)
            remark = f" ({remarks[metric.name]})" if metric.name in remarks else ""
            rows.append((label, f"{value:{metric.form}}{metric.unit}{remark}"))
    if before:
        change = change_text(metrics, before)
        rows.insert(1, ("  before this training", f"{before['loss']:.3f} nats ({change})"))
    if corpus:
        rows.insert(0, ("Measured on", printable(some_of(corpus))))
    return "\n".join(f"{label:<36}{text}" for label, text in rows)


def change_text(metrics: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    """Say how much further training has changed the loss on the same held-out targets.

    Parameters
    ----------
    metrics : dict
        `held_out` of a report.
    before : dict
        `held_out_before` of the report.

    Returns
    -------
    str

    Examples
    --------
    >>> change_text({"loss": 2.5}, {"loss": 2.75})
    'the loss has fallen by 0.250'
    """
    change = metrics["loss"] - before["loss"]
    direction = "fallen" if change <= 0 else "risen"
    return f"the loss has {direction} by {abs(change):.3f}"


def error_text(metrics: Mapping[str, Any]) -> str:
    """Format how certain a held-out loss is.

    Parameters
    ----------
    metrics : mapping
        Metrics of `HeldOut.to_dict()`.

    Returns
    -------
    str
        Text that begins with a comma; "" if the standard error is not known.
    """
    error = metrics.get("standard_error")
    if error is None:
        return ""
    text = f", standard error {error:.3f}"
    if metrics.get("documents") is not None:
        text += f" over {counted(metrics['documents'], 'document')}"
    return text
