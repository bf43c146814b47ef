"""Draw the gradient norm and the learning rate of each step, for the pages of both kinds of runs."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from minibert.reports.markup import shown
from minibert.reports.pictures import Curve, picture, points

LEAPS = "a norm that leaps together with the loss is a sign of too high a learning rate."


class StepChart(NamedTuple):
    """A plot, and the sentence above it."""

    sentence: str  # what to look at
    picture: dict[str, Any]  # as `picture` returns it


def step_charts(
    lines: Sequence[Mapping[str, float]],
    last: float,
    clip_norm: float | None = None,
    warmup: float | None = None,
    breaks: Sequence[float] = (),
    marks: Sequence[tuple[float, str]] = (),
) -> list[StepChart]:
    """Plot the norm of the gradient with the clip norm, and the learning rate.

    Parameters
    ----------
    lines : sequence of dict
        Lines of `metrics.jsonl`.
    last : float
        The step at which the horizontal axis ends.
    clip_norm : float, default None
        Largest norm that is not cut; 0: no limit; None: not known.
    warmup : float, default None
        Share of the steps in which the rate rises; None: not known.
    breaks : sequence of float
        Steps at which the smoothing of the norm restarts.
    marks : sequence of (float, str)
        Vertical lines in the plot of the norm: a step and its name.

    Returns
    -------
    list of StepChart
        Without those of which nothing was recorded.
    """
    norms = points(lines, "gradient_norm")
    rates = points(lines, "learning_rate")
    limits = [(clip_norm, f"clip norm: {clip_norm:g}")] if clip_norm else []
    norm_curve = Curve("loss", norms, breaks=breaks)
    rate_curve = Curve("loss", rates, exact=True)
    of_norms = picture("gradient norm", [norm_curve], shown, last, lines=limits, marks=marks)
    of_rates = picture("learning rate", [rate_curve], "{:.3g}".format, last)
    charts = [(_about_norms(norms, clip_norm), of_norms), (_about_rates(warmup), of_rates)]
    return [StepChart(sentence, drawn) for sentence, drawn in charts if drawn]


# norms (n,2)
def _about_norms(norms: np.ndarray, clip_norm: float | None) -> str:
    """Say what the clip norm does, at how many steps it does so, and which norms are a bad sign."""
    if clip_norm is None:
        return f"The norm of the gradient at each step: {LEAPS}"
    if not clip_norm:
        return f"No gradient is scaled down, as the run has no clip norm; {LEAPS}"
    is_cut = norms[:, 1] > clip_norm
    where = f"{is_cut.mean():.1%} of the steps" if is_cut.any() else "none of the steps"
    cut = "Where the norm is above the dashed clip norm, the gradient is scaled down to it"
    return f"{cut}, here at {where}; {LEAPS}"


def _about_rates(warmup: float | None) -> str:
    """Say how the learning rate goes, and why it begins low."""
    if warmup is None:
        return "The learning rate of each step."
    if not warmup:
        return "Without a warm-up, the learning rate is highest at the first step, and falls towards zero."
    rises = f"The learning rate rises to its peak in the warm-up, the first {100 * warmup:g}% of the steps"
    return f"{rises}, while the averages of the optimizer rest on few gradients; then it falls towards zero."
