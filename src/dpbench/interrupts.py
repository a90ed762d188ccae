"""Turn requests to stop into an exception, for work that cleans up behind itself."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from dpbench.errors import Interrupted

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def stop_signals_raise() -> Iterator[None]:
    """Raise Interrupted at Ctrl-C, SIGTERM and SIGHUP; one that is ignored stays ignored."""

    def raise_interrupted(signum: int, frame: FrameType | None) -> None:
        raise Interrupted(signal.Signals(signum).name)

    former = {
        number: signal.signal(number, raise_interrupted)
        for number in STOP_SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN  # nohup
    }
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
