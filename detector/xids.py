"""Xid codes of the GPU driver by what they speak of; the reading of NVIDIA's catalogue that the words of evidence need."""

from __future__ import annotations

from features.parsers.logkernel import APPLICATION, FOLLOWUP

APPLICATION_CODES, FOLLOWUP_CODES = frozenset(APPLICATION.split("|")), frozenset(FOLLOWUP.split("|"))
LINK_CODES = frozenset({"74", "121", "136", *map(str, range(144, 151)), "155"})
MEMORY_CODES = frozenset({"48", "64", "92", "95", "140", "156", "157", "168"})
LOST_CODES = frozenset({"46", "54", "62", "79", "109", "119", "120", "143", "158", "167"})
_GROUPS = (
    ("log_xid_application", APPLICATION_CODES),
    ("log_xid_link", LINK_CODES),
    ("log_xid_memory", MEMORY_CODES),
    ("log_xid_lost", LOST_CODES),
)


def xid_words(code: str) -> tuple[str, ...]:
    """Words of the evidence vocabulary for an Xid: always `log_xid`, and what it speaks of; none for one that follows another.

    >>> xid_words("119")
    ('log_xid', 'log_xid_lost')
    >>> xid_words("45")
    ()
    """
    if code in FOLLOWUP_CODES:
        return ()
    return ("log_xid", *(group for group, codes in _GROUPS if code in codes))
