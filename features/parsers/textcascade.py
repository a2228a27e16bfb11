"""Tells what follows from an earlier failure, as far as one file shows it: exits of processes that others took down."""

from __future__ import annotations

from msgspec.structs import replace

from features.records import Log

_FAILED_BY_OTHERS = frozenset({"horovod_error", "connection_lost"})


class Aftermath:
    """Marks messages with the field `cascade` ("true") where an earlier message of the file explains them."""

    def __init__(self) -> None:
        self._ending = False  # the launcher ends the other processes
        self._victims: set[int] = set()  # ranks that gave up because of another one

    def judge(self, log: Log) -> Log:
        """`log`, marked if it follows from what came before."""
        if log.event in _FAILED_BY_OTHERS:
            if log.rank is not None:
                self._victims.add(log.rank)
            return replace(log, fields=log.fields | {"cascade": "true"})
        if log.event == "process_exit":
            log = self._exit(log)
        if log.event == "job_aborted":
            self._ending = True
        return log

    def _exit(self, log: Log) -> Log:
        signal = log.fields.get("signal")
        if signal == "SIGTERM" and self._ending:
            return replace(log, event="process_terminated")
        victim = signal is None and bool(log.ranks) and self._victims.issuperset(log.ranks)
        after = self._ending and signal is None and "first" not in log.fields
        return replace(log, fields=log.fields | {"cascade": "true"}) if victim or after else log
