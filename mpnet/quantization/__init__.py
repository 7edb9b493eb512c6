"""Ranges, scales, calibration and corrections."""
