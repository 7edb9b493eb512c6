# SPDX-License-Identifier: MIT
"""Tuning: weights changed so that a cheap configuration gives again what the fp32 network gave, from images without labels.

`layerwise` corrects a scale and a bias of each channel and `rounding` learns codes, layer by layer (`lockstep`), without any
package beside NumPy; `channel_signs` turns and scales channels, `range_choice` chooses how ranges are found; `end_to_end`
trains by PyTorch. `write` turns changed convolutions into a weights file of the same network; `record` is the document beside
it. `trial.tune` tells the story.
"""
