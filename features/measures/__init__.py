"""Measures: what happened in one window, in seconds, bytes and shares, per rank and for the run; still absolute."""
