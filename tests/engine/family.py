# SPDX-License-Identifier: MIT
"""One small network per kind of layer that the two Darknet programs have."""

from __future__ import annotations

CONV = "[convolutional]\nbatch_normalize=1\nfilters={}\nsize=3\nstride={}\npad=1\nactivation=leaky\n"
NET = "[net]\nwidth=14\nheight=10\nchannels=3\n"
END = "[convolutional]\nfilters=4\nsize=1\nactivation=linear\n"
A, B = CONV.format(8, 2), CONV.format(8, 1)
ACTIVATIONS = (
    "loggy",
    "tanh",
    "relie",
    "ramp",
    "plse",
    "elu",
    "selu",
    "gelu",
    "stair",
    "hardtan",
    "lhtan",
    "hard_mish",
    "revleaky",
    "hard_sigmoid",
    "hard_swish",
    "gelu_erf",
    "sqrt",
    "normalize_channels",
    "normalize_channels_softmax",
    "normalize_channels_softmax_maxval",
)

LAYERS: dict[str, str] = {
    "connected": A + "[connected]\noutput=9\nactivation=tanh\nbatch_normalize=1\n[connected]\noutput=5\n",
    "classifier": A + "[avgpool]\n[softmax]\n[cost]\n",
    "attention": CONV.format(44, 2) + "[attention]\nheads=2\nkey=9\nareas=5\n" + END,
    "softmax": A + "[softmax]\ngroups=4\ntemperature=3\n",
    "batchnorm": A + "[batchnorm]\n" + END,
    "deconvolutional": A + "[deconvolutional]\nfilters=5\nsize=3\nstride=2\npad=1\nactivation=leaky\n" + END,
    "activations": "".join(f"[convolutional]\nfilters=8\nsize=1\nactivation={word}\n" for word in ACTIVATIONS)
    + "[activation]\nactivation=elu\n[logistic]\n",
    "antialiasing": "[convolutional]\nfilters=8\nsize=3\npad=1\nstride=2\nactivation=leaky\nantialiasing=1\n"
    "[maxpool]\nsize=2\nstride=2\nantialiasing=2\n" + END,
    "strides": "[convolutional]\nfilters=8\nsize=3\npad=1\nstride_x=2\nstride_y=1\nactivation=swish\n"
    "[maxpool]\nsize=3\nstride_x=1\nstride_y=2\n" + END,
    "share_index": A + B + B + "share_index=-1\n" + END,
    "pools": A + "[maxpool]\nmaxpool_depth=1\nout_channels=3\n[local_avgpool]\nsize=2\nstride=2\n" + END,
    "upsample": A + "[upsample]\nstride=2\nscale=0.5\n[upsample]\nstride=-2\nscale=2\n" + END,
    "crop": "[crop]\ncrop_width=9\ncrop_height=7\n" + A + "[crop]\ncrop_width=3\ncrop_height=3\nnoadjust=1\n" + END,
    "pad": "[pad]\nbottom=1\nright=2\n[pad]\ntop=1\nleft=2\nedge=1\n"
    + A
    + "[pad]\ntop=2\nleft=1\nfront=3\nback=1\n"
    + B
    + "[slice]\nfirst=3\nchannels=4\n"
    + B
    + "[pad]\nback=2\n"
    + END,
    "reorg": CONV.format(8, 1) + "[reorg]\nstride=2\n" + END + "[reorg]\nstride=2\nreverse=1\n[reorg]\nflatten=1\n",
    "reorg3d": CONV.format(16, 1) + "[reorg3d]\nstride=2\n" + END.replace("4", "16") + "[reorg3d]\nstride=2\nreverse=1\n" + END,
    "depth_to_space": CONV.format(12, 2) + "[depth_to_space]\n" + END,
    "reorg extra": A + "[reorg]\nextra=3\n[connected]\noutput=5\nactivation=linear\n",
    "shortcuts": A
    + B
    + CONV.format(12, 1)
    + "[shortcut]\nfrom=-2\nactivation=leaky\n"
    + B
    + "[shortcut]\nfrom=-1,-4,-5\nactivation=swish\n"
    + B
    + "[shortcut]\nfrom=-2,-3\nweights_type=per_channel\nweights_normalization=softmax\nactivation=linear\n"
    + B
    + "[shortcut]\nfrom=-3\nweights_type=per_feature\nweights_normalization=relu\nactivation=tanh\n"
    + END,
    "strided shortcuts": CONV.format(8, 1)
    + CONV.format(12, 2)
    + "[shortcut]\nfrom=-2\nactivation=leaky\n"
    + CONV.format(6, 1)
    + "[shortcut]\nfrom=-3\nalpha=0.7\nbeta=1.5\n[upsample]\nstride=2\n[shortcut]\nfrom=-3\nactivation=relu\n"
    + END,
    "squeeze": A + "[avgpool]\n[convolutional]\nfilters=8\nsize=1\n[scale_channels]\nfrom=0\n"
    "[convolutional]\nfilters=1\nsize=1\n[scale_channels]\nfrom=-2\nscale_wh=1\nactivation=relu\n" + END,
    "sam": A + B + "[sam]\nfrom=-2\nactivation=linear\n[implicit]\nfilters=8\n[scale_channels]\nfrom=-2\n" + END,
    "normalization": A + "[normalization]\nsize=5\nkappa=2\nalpha=0.001\n[empty]\n[l2norm]\n" + END,
    "reshape": A + "[reshape]\nwidth=5\n" + END,
    "shuffle": CONV.format(12, 2) + "[shuffle]\n[shuffle]\ngroups=3\n" + END,
    "layernorm": A + "[layernorm]\nepsilon=1e-3\n" + B + "[layernorm]\nwhole=1\n" + END,
    "contrastive": A + "[contrastive]\n" + END,
    "region": A + END.replace("4", "14") + "[region]\nclasses=2\nnum=2\nanchors=1,2,3,4\nsoftmax=1\n",
    "gaussian": A + END.replace("4", "22") + "[Gaussian_yolo]\nclasses=2\nnum=2\nanchors=1,2,3,4\n",
    "detection": A + "[connected]\noutput=48\nactivation=linear\n[detection]\nclasses=2\ncoords=4\nside=2\nnum=2\nsqrt=1\n",
}


def family_cfg(name: str) -> str:
    """Return the cfg of a network with this kind of layer."""
    return NET + LAYERS[name]
