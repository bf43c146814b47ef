"""How far some long work is, for the person watching: a bar, or a line now and then where there is none."""

import time
from typing import Any

from tqdm import tqdm

from minibert.training.runlog import QUIET_SECONDS, bar, say

BAR = "{{l_bar}}{{bar}}| {{n_fmt}}/{{total_fmt}} {}, {{rate_fmt}}, {{remaining}} left"


class Progress:
    """Show how much is done, and how long the rest will take.

    It is counted in a `unit` such as "tokens"; without a total nobody knows how much there is. `show=False`
    says nothing.
    """

    def __init__(self, total: int | None, unit: str, show: bool = True) -> None:
        self._unit = unit
        form = {"bar_format": BAR.format(unit)} if total else {"unit": f" {unit}"}
        self._bar = bar(show, total=total, unit_scale=True, **({"unit": ""} | form))
        self._lines = show and self._bar.disable  # no terminal
        self._total, self._done = total, 0
        self._began = self._shown = time.monotonic()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: Any) -> None:
        self._bar.close()

    def add(self, count: int) -> None:
        """Count what more is done."""
        self._done += count
        self._bar.update(count)
        now = time.monotonic()
        if self._lines and now - self._shown > QUIET_SECONDS:
            self._shown = now
            rate = self._done / (now - self._began)
            share, left = "", ""
            if self._total and self._done:
                share = f" of {self._total:,}"
                left = f", {tqdm.format_interval((self._total - self._done) / rate)} left"
            say(f"{self._done:,}{share} {self._unit}, {rate:,.0f} a second{left}")
