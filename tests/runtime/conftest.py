from __future__ import annotations

import signal

import pytest


@pytest.fixture
def no_waiting():
    """Whatever waits for the other end of a FIFO fails instead."""

    def stop(number, frame):
        raise TimeoutError("it waits")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(100)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
