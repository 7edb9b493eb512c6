"""Readers and writers: bytes to spec and back, each with limits and one-line errors."""
