"""Telemetry in, numbers out: record types, parsers, clock alignment, windows and features. Imports nobody of ours."""
