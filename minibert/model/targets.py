"""Standardise regression targets: a head learns numbers of mean 0 and standard deviation 1.

A head begins near 0 and takes steps of about the learning rate. It would need thousands of steps to reach
numbers far from 0 or far apart, such as prices or years. So a run learns, instead of each training target y,

    z = (y - mean) / scale

When its head predicts z as x W + b, the prediction of y is

    y = (x W + b) scale + mean = x (W scale) + (b scale + mean)

so a model is stored with W scale and b scale + mean, and its readers need to know nothing of this.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from minibert.base.errors import InputError
from minibert.model.params import Parameters

TARGETS = "targets"  # key in the plan of a run, which every checkpoint has; absent if labels are not scaled
LARGEST, SMALLEST = 1e36, 1e-30  # the largest label and smallest spread with which weights fit float32
COARSEST = 0.01  # how far float32 may round a label, in standard deviations


class Targets(NamedTuple):
    """The mean and scale that bring training targets to mean 0 and standard deviation 1.

    Attributes
    ----------
    mean : float
        Mean of the training targets.
    scale : float
        Standard deviation of the training targets; 1 if all are equal.
    """

    mean: float
    scale: float

    @classmethod
    def of(cls, labels: Sequence[float]) -> Self:
        """Measure the training targets.

        Parameters
        ----------
        labels : (n,)
            Finite numbers.

        Returns
        -------
        Targets

        Raises
        ------
        InputError
            When float32 can't hold the weights or tell the labels apart, as they are too large or too close.
        """
        values = np.asarray(labels, np.float64)
        largest = float(np.abs(values).max())
        if largest > LARGEST:
            what = f"The labels reach {largest:g}, more than weights in float32 can predict"
            raise InputError(f"{what}; divide all of them, or take their logarithms.")
        if values.min() == values.max():
            return cls(float(values[0]), 1.0)
        scale = float(values.std())
        if scale < SMALLEST:
            what = f"The labels lie within {np.ptp(values):g}, less than weights in float32 can tell apart"
            raise InputError(f"{what}; multiply all of them.")
        step = float(np.spacing(np.float32(largest)))
        if step > COARSEST * scale:
            what = f"The labels lie within {np.ptp(values):g} and reach {largest:.10g}"
            rounded = f"numbers of that size are rounded to {step:g} in float32"
            raise InputError(
                f"{what}, and {rounded}; subtract one number, such as {values.min():.10g}, from all."
            )
        return cls(float(values.mean()), scale)

    def standardised(self, label: float) -> float:
        """Return a label as it is trained on.

        Parameters
        ----------
        label : float
            The label in its own unit.
        """
        return (label - self.mean) / self.scale

    # scores (..., 1) -> (..., 1) float64
    def restored(self, scores: Any) -> np.ndarray:
        """Convert standardised predictions to the unit of the labels.

        Parameters
        ----------
        scores : (...,1)
            Standardised predictions.

        Returns
        -------
        (...,1) float64
            Predictions in the unit of the labels.
        """
        return np.asarray(scores, np.float64) * self.scale + self.mean

    def folded(self, params: Parameters) -> Parameters:
        """Return a copy of a model whose head predicts labels in their own unit, not standardised ones.

        Parameters
        ----------
        params : Parameters
            Model with a head of one output, which predicts standardised labels; it is not changed.
        """
        copied = params.like(np.array(params.flat))
        weight, bias = copied["head.weight"], copied["head.bias"]
        weight[...] = weight.astype(np.float64) * self.scale
        bias[...] = self.restored(bias)
        return copied

    def unfold(self, params: Parameters) -> None:
        """Undo `folded` in place: make the head predict standardised labels again.

        Parameters
        ----------
        params : Parameters
            Model with a head of one output.
        """
        weight, bias = params["head.weight"], params["head.bias"]
        weight[...] = weight.astype(np.float64) / self.scale
        bias[...] = (bias.astype(np.float64) - self.mean) / self.scale


def targets_of(plan: dict[str, Any]) -> Targets | None:
    """Return how a run scales its labels; None if it does not.

    Parameters
    ----------
    plan : dict
        Plan of the run, which every checkpoint has.
    """
    if TARGETS not in plan:
        return None
    return Targets(*plan[TARGETS])
