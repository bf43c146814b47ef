"""Standardise regression targets: a head learns numbers of mean 0 and standard deviation 1.

A head begins near 0 and takes steps of about the learning rate, so that numbers far from 0, or far apart,
such as prices or years, would take it thousands of steps to come near. A run learns

    z = (y - mean) / scale        of each training target y

and what its head x W + b predicts of z is, as a number,

    y = (x W + b) scale + mean = x (W scale) + (b scale + mean)

so that a model is stored with W scale and b scale + mean: whoever reads it needs to know nothing of this.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from minibert.base.errors import InputError
from minibert.model.params import Parameters

TARGETS = "targets"  # in the plan of a run, which every checkpoint has; runs of earlier versions have none
LARGEST, SMALLEST = 1e36, 1e-30  # of numbers whose scaled weights float32 still holds
COARSEST = 0.01  # how far float32 may round a number, in standard deviations


class Targets(NamedTuple):
    """How training targets are brought to mean 0 and standard deviation 1.

    Attributes
    ----------
    mean : float
    scale : float
        Their standard deviation; 1 where all are equal.
    """

    mean: float
    scale: float  # their standard deviation; 1 where all are equal

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
            When they are too large, or lie too near each other for their size, for weights in float32.
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
        """Return a number at the scale of training.

        Parameters
        ----------
        label : float
            In its own unit.
        """
        return (label - self.mean) / self.scale

    # scores (..., 1) -> (..., 1) float64
    def restored(self, scores: Any) -> np.ndarray:
        """Convert the predictions of a head that was trained on standardised numbers to numbers.

        Parameters
        ----------
        scores : (...,1)
            At the scale that is learnt.

        Returns
        -------
        (...,1) float64
            In their own unit.
        """
        return np.asarray(scores, np.float64) * self.scale + self.mean

    def folded(self, params: Parameters) -> Parameters:
        """Return a copy of a model that predicts standardised numbers, whose head predicts numbers.

        Parameters
        ----------
        params : Parameters
            With a head for one number; it is left as it is.
        """
        copied = params.like(np.array(params.flat))
        weight, bias = copied["head.weight"], copied["head.bias"]
        weight[...] = weight.astype(np.float64) * self.scale
        bias[...] = self.restored(bias)
        return copied

    def unfold(self, params: Parameters) -> None:
        """Make the head of a model that predicts numbers predict standardised ones, in place.

        Parameters
        ----------
        params : Parameters
            With a head for one number.
        """
        weight, bias = params["head.weight"], params["head.bias"]
        weight[...] = weight.astype(np.float64) / self.scale
        bias[...] = (bias.astype(np.float64) - self.mean) / self.scale


def targets_of(plan: dict[str, Any]) -> Targets | None:
    """Return how a run scales its numbers, by its plan; None if it does not.

    Parameters
    ----------
    plan : dict
        Plan of the run, which every checkpoint has.
    """
    if TARGETS not in plan:
        return None
    return Targets(*plan[TARGETS])
