"""Signals to a launcher: the first asks its processes to save and leave, the second kills them."""

import signal
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """While entered, signals are only remembered; one that was ignored before (SIGHUP under nohup)
    stays ignored.

    Attributes:
      signals: the numbers of those that came, in order.
    """

    def __init__(self) -> None:
        self.signals: list[int] = []
        self._before: dict[int, Any] = {}

    @property
    def signal(self) -> int | None:
        """The first that came, None before."""
        return self.signals[0] if self.signals else None

    def __enter__(self) -> "Stop":
        for number in _SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.signals.append(number)


class FirstStop(Stop):
    """A `Stop` for which only the first signal counts: what places a worker may repeat it while the
    trial saves.
    """

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if not self.signals:
            super()._remember(number, frame)
