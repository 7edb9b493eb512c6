"""The embedded model and its data."""
