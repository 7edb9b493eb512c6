"""Frozen descriptions of networks, precisions and experiments. No input or output here."""
