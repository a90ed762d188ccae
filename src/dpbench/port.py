"""The rendezvous port of a run: free when it starts, and of no other run until it ends."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator

from dpbench.errors import SetupError

HINT = "choose another launch.master_port, or leave it out for a free one"


@contextlib.contextmanager
def hold_port(port: int | None) -> Iterator[None]:
    """Keep a port for one run: meanwhile every other dpbench is refused it. None is no port.

    The ranks bind the port seconds later, and torchrun joins whoever has it by then. So the hold is
    a socket of another kind: a name in Linux's abstract namespace, which reaches as far as the port
    itself (one network namespace, all users) and ends with this process, however that ends.
    Errors: SetupError when another dpbench holds the port or anybody listens on it.
    """
    if port is None:
        yield
        return
    with socket.socket(socket.AF_UNIX) as hold:
        try:
            hold.bind(f"\0dpbench-port-{port}")
        except OSError as error:
            reason = error.strerror
            if error.errno == errno.EADDRINUSE:
                reason = "another dpbench run has it"
            raise SetupError(f"port {port}: {reason}", hint=HINT) from None
        check_listener(port)
        yield


def check_port(port: int) -> None:
    """Refuse a port that hold_port() would not get now. Errors: SetupError."""
    with hold_port(port):
        pass


def check_listener(port: int) -> None:
    """Refuse a port that somebody listens on. Errors: SetupError."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise SetupError(f"port {port}: {error.strerror}", hint=HINT) from None
