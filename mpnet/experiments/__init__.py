"""Spaces, strategies, shared prefixes, the store and the runner."""
