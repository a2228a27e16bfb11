"""The product: scores runs, diagnoses incidents, learns from labels.

>>> from detector import score
>>> report = score("runs/today")  # doctest: +SKIP
>>> report.incidents[0].cause  # doctest: +SKIP
'slow-rank'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from detector.report import Incident, Report
    from detector.wiring import score

__all__ = ["Incident", "Report", "score"]

_HOMES = {"Incident": "detector.report", "Report": "detector.report", "score": "detector.wiring"}


def __getattr__(name: str) -> Any:
    """Import on first use: the command line must answer `--help` without loading numpy."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module 'detector' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
