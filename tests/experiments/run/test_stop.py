"""Signals to a launcher are counted."""

import signal

import pytest

from attnlab.experiments.run.stop import Stop


@pytest.mark.quick
def test_signals_are_remembered_in_order_and_handlers_come_back() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        # a shell's background job starts with SIGINT ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
        with Stop() as stop:
            assert stop.signal is None
            for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
                signal.raise_signal(number)
            assert stop.signals == [signal.SIGTERM, signal.SIGINT] and stop.signal == signal.SIGTERM
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
