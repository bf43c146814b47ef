"""Signals are handled for a while, and afterwards as before."""

import signal

from minibert.base.errors import handle_signals, restore_signals


def test_handlers_are_those_of_before_when_the_work_is_done():
    before = signal.getsignal(signal.SIGTERM)
    seen = []
    kept = handle_signals(
        ("SIGTERM", "SIGNONE"), lambda number, frame: seen.append(number), replaces=lambda handler: True
    )
    try:
        signal.raise_signal(signal.SIGTERM)
        assert seen == [signal.SIGTERM] and kept == {signal.SIGTERM: before}
    finally:
        restore_signals(kept)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_handler_that_is_not_to_be_replaced_stays():
    before = signal.getsignal(signal.SIGTERM)
    assert handle_signals(("SIGTERM",), print, replaces=lambda handler: False) == {}
    assert signal.getsignal(signal.SIGTERM) == before
