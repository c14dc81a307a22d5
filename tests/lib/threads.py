"""What the threads of a test share: when to end, what was counted, what went wrong."""

import collections
import random
import threading
import time
import traceback

from lib.wire import ConnectionLost, ServerError, ServerStuck


class Wrong(Exception):
    """Something was not what it had to be."""


class Shared:
    """Of a test of `given.seconds`."""

    def __init__(self, given):
        self.given = given
        self.end = time.monotonic() + given.seconds
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.failures = []

    def over(self) -> bool:
        return self.stop.is_set() or time.monotonic() > self.end

    def count(self, what: str, times: int = 1) -> None:
        with self.lock:
            self.counts[what] += times

    def fail(self, what: str) -> None:
        with self.lock:
            self.failures.append(what)
        self.stop.set()

    def start(self, name: str, work) -> threading.Thread:
        """Calls work(rng) in a thread; what goes wrong in it ends the test."""

        def guarded() -> None:
            try:
                work(random.Random(f"{self.given.seed} {name}"))
            except (Wrong, ConnectionLost, ServerError, ServerStuck) as error:
                self.fail(f"{name}: {type(error).__name__}: {error}")
            except Exception:
                self.fail(f"{name}: {traceback.format_exc()}")

        started = threading.Thread(target=guarded, name=name)
        started.start()
        return started
