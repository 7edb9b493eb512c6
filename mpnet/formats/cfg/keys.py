# SPDX-License-Identifier: MIT
"""Keys that any section of a cfg may have; those of one kind of section stand beside its reader."""

from __future__ import annotations

from mpnet.model.keys import paths_of
from mpnet.model.precision import PRECISIONS
from mpnet.model.quantization import QuantizationOptions

PRECISION_KEYS: tuple[str, ...] = (*PRECISIONS, "quantize", "quantize_range")
QUANTIZATION_KEYS: tuple[str, ...] = tuple(key.cfg for key in paths_of(QuantizationOptions).values() if key.cfg)
"""How a layer is quantised."""

# Words that people write for a precision and that are no key here -> what they mean.
MISTAKEN: dict[str, str] = {
    "precision": "int8=1",
    "dtype": "int8=1",
    "float": "fp32",
    "float32": "fp32",
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "single": "fp32",
    "char": "int8",
    "i8": "int8",
    "f16": "fp16",
    "f32": "fp32",
    "q8": "int8",
    "quant": "quantize",
}


TRAINING_ANYWHERE = (
    "learning_rate burnin_update dont_update train_only_bn stopbackward onlyforward dontload dontloadscales clip "
    "optimized_memory stream wait_stream learning_rate_scale momentum decay"
)
"""Keys of any section, as one text, that say nothing about a forward pass; accepted silently."""
TRAINING_NET = (
    "batch subdivisions momentum decay angle saturation exposure hue learning_rate learning_rate_min burn_in "
    "max_batches policy steps scales gamma scale step seq_scales sgdr_cycle sgdr_mult power max_crop min_crop "
    "max_ratio min_ratio center aspect notruth random adam B1 B2 eps time_steps track augment_speed "
    "sequential_subdivisions try_fix_nan loss_scale dynamic_minibatch optimized_memory workspace_size_limit_MB "
    "mosaic mosaic_bound cutmix mixup blur gaussian_noise flip contrastive contrastive_jit_flip "
    "contrastive_color unsupervised label_smooth_eps resize_step attention adversarial_lr max_chart_loss "
    "show_receptive_field use_cuda_graph ema_alpha equidistant_point num_sigmas_reject_badlabels "
    "badlabels_rejection_percentage weights_reject_freq num_boxes inputs input_calibration log_step multi_scale "
    "burnin_power cudnn_half train cosine"
)
"""The same of [net]."""
