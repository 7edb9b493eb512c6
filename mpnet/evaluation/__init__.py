"""Matching, average precision, agreement and paired statistics."""
