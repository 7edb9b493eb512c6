# SPDX-License-Identifier: MIT
"""Which cfg keys are known beside those that the reader uses.

TRAINING: say nothing about a forward pass; accepted silently. DEFAULT_ONLY: change a forward pass in ways that are
not supported; accepted at the value that changes nothing, an error otherwise.
"""

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


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ANYWHERE = _words(
    "learning_rate burnin_update dont_update train_only_bn stopbackward onlyforward dontload dontloadscales clip "
    "optimized_memory stream wait_stream learning_rate_scale momentum decay"
)

TRAINING: dict[str, frozenset[str]] = {
    "net": _words(
        "batch subdivisions momentum decay angle saturation exposure hue learning_rate learning_rate_min burn_in "
        "max_batches policy steps scales gamma scale step seq_scales sgdr_cycle sgdr_mult power max_crop min_crop "
        "max_ratio min_ratio center aspect notruth random adam B1 B2 eps time_steps track augment_speed "
        "sequential_subdivisions try_fix_nan loss_scale dynamic_minibatch optimized_memory workspace_size_limit_MB "
        "letter_box mosaic mosaic_bound cutmix mixup blur gaussian_noise flip contrastive contrastive_jit_flip "
        "contrastive_color unsupervised label_smooth_eps resize_step attention adversarial_lr max_chart_loss "
        "show_receptive_field use_cuda_graph ema_alpha equidistant_point num_sigmas_reject_badlabels "
        "badlabels_rejection_percentage weights_reject_freq num_boxes inputs input_calibration log_step multi_scale "
        "burnin_power cudnn_half train cosine"
    ),
    "convolutional": _words(
        "dot grad_centr sparse assisted_excitation deform angle stretch sway rotate stretch_sway coordconv reverse "
        "wait_stream output_batch_normalize"
    ),
    "connected": frozenset(),
    "deconvolutional": frozenset(),
    "batchnorm": frozenset(),
    "local_avgpool": frozenset(),
    "scale_channels": frozenset(),
    "sam": frozenset(),
    "implicit": frozenset(),
    "activation": frozenset(),
    "normalization": frozenset(),
    "l2norm": frozenset(),
    "logistic": frozenset(),
    "pad": frozenset(),
    "slice": frozenset(),
    "reorg": frozenset(),
    "reorg3d": frozenset(),
    "empty": frozenset(),
    "softmax": _words("spatial noloss"),
    "cost": _words("type scale ratio noobj thresh smooth"),
    "contrastive": _words(
        "classes temperature yolo_layer max_delta cls_normalizer contrastive_neg_max steps embedding_size detection"
    ),
    "crop": _words("flip angle saturation exposure shift"),
    "maxpool": frozenset(),
    "avgpool": frozenset(),
    "upsample": frozenset(),
    "route": frozenset(),
    "shortcut": _words("layers"),
    "dropout": _words("probability dropblock dropblock_size_rel dropblock_size_abs"),
    "yolo": _words(
        "jitter ignore_thresh truth_thresh iou_thresh random resize max absolute iou_normalizer obj_normalizer "
        "cls_normalizer delta_normalizer max_delta iou_loss iou_thresh_kind label_smooth_eps objectness_smooth "
        "focal_loss counters_per_class track_history_size sim_thresh dets_for_track dets_for_show track_ciou_norm "
        "embedding_layer rescore thresh softmax bias_match show_details uc_normalizer coords"
    ),
}
TRAINING["Gaussian_yolo"] = TRAINING["yolo"]
TRAINING["region"] = TRAINING["yolo"] | _words(
    "object_scale noobject_scale class_scale coord_scale mask_scale classfix log mask hue exposure saturation"
)
TRAINING["detection"] = TRAINING["region"] | _words("side reorg")
TRAINING = {section: keys | _ANYWHERE for section, keys in TRAINING.items()}

# key -> the value at which it changes nothing.
DEFAULT_ONLY: dict[str, dict[str, str]] = {
    "convolutional": {"xnor": "0", "binary": "0", "bin_output": "0", "use_bin_output": "0"}
}
