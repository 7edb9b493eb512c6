# SPDX-License-Identifier: MIT
"""Reading cfg files: shapes, keys, and one clear line for everything that is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mpnet.errors import FormatError, MpnetError, PrecisionError
from mpnet.formats.cfg.layers import READERS
from mpnet.formats.cfg.position import SectionReader, keeps_shape
from mpnet.formats.cfg.read import parse_cfg, read_cfg
from mpnet.model.layers import ACTIVATIONS, LAYER_KINDS, EmptySpec
from mpnet.model.network import ConvolutionSpec, MaxpoolSpec, NetworkSpec, YoloSpec
from mpnet.model.precision import BASE_NAMES, FP16, INT8

NET = "[net]\nwidth=32\nheight=16\nchannels=3\n"
CONV = "[convolutional]\nfilters=8\nsize=3\nstride=2\npad=1\nactivation=leaky\n"


def shapes(text: str) -> list[tuple[int, int, int]]:
    return [layer.out_shape for layer in parse_cfg(text).layers]


def test_convolution_has_all_its_keys() -> None:
    layer = parse_cfg(NET + CONV + "batch_normalize=1\n").layers[0]
    assert isinstance(layer, ConvolutionSpec)
    assert (layer.filters, layer.size, layer.stride, layer.padding, layer.activation) == (8, 3, 2, 1, "leaky")
    assert (layer.in_shape, layer.out_shape, layer.inputs, layer.line) == ((16, 32, 3), (8, 16, 8), (-1,), 5)
    assert (layer.weight_count, layer.parameters, layer.macs) == (216, 216 + 32, 8 * 16 * 8 * 27)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("size=5\npad=1", (16, 32, 4)),
        ("size=3\npadding=0", (14, 30, 4)),
        ("size=3\npadding=2", (18, 34, 4)),
        ("size=3\npad=1\ndilation=2", (16, 32, 4)),
        ("size=3\ndilation=3", (10, 26, 4)),
        ("size=1\npad=1\nstride=2", (8, 16, 4)),
    ],
)
def test_convolution_shapes(keys: str, expected: tuple[int, int, int]) -> None:
    assert shapes(f"{NET}[convolutional]\nfilters=4\nactivation=linear\n{keys}\n") == [expected]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("size=2\nstride=2", (8, 16, 3)),
        ("size=2\nstride=1", (16, 32, 3)),
        ("size=5\nstride=1", (16, 32, 3)),
        ("size=3\nstride=2", (8, 16, 3)),
        ("size=3\nstride=2\npadding=0", (7, 15, 3)),
        ("stride=4", (4, 8, 3)),
    ],
)
def test_maxpool_shapes(keys: str, expected: tuple[int, int, int]) -> None:
    assert shapes(f"{NET}[maxpool]\n{keys}\n") == [expected]


def test_route_joins_negative_and_absolute_layers() -> None:
    network = parse_cfg(NET + CONV + "[maxpool]\nsize=2\nstride=1\n[route]\nlayers=-1, 0\n[upsample]\nstride=2\n")
    assert network.layers[2].inputs == (1, 0)
    assert [layer.out_shape for layer in network.layers[2:]] == [(8, 16, 16), (16, 32, 16)]


def test_route_takes_a_group_of_channels() -> None:
    layer = parse_cfg(NET + CONV + "[route]\nlayers=-1\ngroups=2\ngroup_id=1\n").layers[1]
    assert layer.out_shape == (8, 16, 4)


def test_blanks_comments_and_line_ends_do_not_matter() -> None:
    text = "# a\r\n[ net ]\r\n width = 32 ; b\r\nheight=16\r[convolutional]\nfilters = 8 # c\nsize=3\n"
    assert shapes(text) == [(14, 30, 8)]


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("int_8=1", "t.cfg:11: unknown key 'int_8'; did you mean 'int8'?"),
        ("quantise=1", "t.cfg:11: unknown key 'quantise'; did you mean 'quantize'?"),
        ("INT8=1", "t.cfg:11: unknown key 'INT8'; did you mean 'int8'?"),
        ("precision=int8", "t.cfg:11: unknown key 'precision'; did you mean 'int8=1'?"),
        (
            "fp32=1\nint8=1",
            "t.cfg:12: fp32 and int8 are 1 in [convolutional]; exactly one of "
            f"{', '.join(BASE_NAMES)} must be 1, or none of them given",
        ),
        (
            "fp32=0\nint8=0",
            "t.cfg:12: fp32, int8: none is 1 in [convolutional]; exactly one of "
            f"{', '.join(BASE_NAMES)} must be 1, or none of them given",
        ),
        ("int8=2", "t.cfg:11: int8=2 is out of range; use 0 to 1"),
        ("int8=1\nint8=0", "t.cfg:12: int8 is already given in line 11; keep one"),
    ],
)
def test_precision_keys_are_checked_at_their_line(extra: str, message: str) -> None:
    with pytest.raises(PrecisionError if "range" not in message else FormatError) as excinfo:
        parse_cfg(NET + CONV + extra + "\n", "t.cfg")
    assert str(excinfo.value) == message


def test_precision_keys_are_read() -> None:
    network = parse_cfg(NET.replace("[net]\n", "[net]\nfp16=1\n") + CONV + "fp32 = 0\nint8 = 1\nquantize = 0\n")
    declared, layer_declared = network.declared, network.layers[0].declared
    assert declared is not None
    assert layer_declared is not None
    assert (
        declared.precision,
        layer_declared.precision,
        layer_declared.line,
        layer_declared.quantize,
        layer_declared.quantize_line,
    ) == (FP16, INT8, 13, False, 14)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t.cfg: empty; a cfg begins with [net]"),
        (CONV, "t.cfg:1: the first section is [convolutional]; a cfg begins with [net]"),
        ("width=3\n", "t.cfg:1: 'width=3' stands before the first section; begin with [net]"),
        (NET, "t.cfg:1: no layer follows [net]"),
        ("[net]\nwidth=32\n" + CONV, "t.cfg:1: width and height of the image are missing or 0; add them to [net]"),
        (NET + "[convolutional\n", "t.cfg:5: '[convolutional' is no section header; write [name]"),
        (NET + CONV + "oops\n", "t.cfg:11: 'oops' is neither [section] nor key=value"),
        (NET + "[shuffle]\n", "t.cfg:5: groups=2 does not divide 3 channels"),
        (NET + "[shuffle]\ngroups=0\n", "t.cfg:6: groups=0 is out of range; use 1 to 65536"),
        (NET + "[lstm]\n", "t.cfg:5: [lstm] is not supported: recurrent networks read sequences, and mpnet runs images"),
        (
            NET + "[local]\n",
            "t.cfg:5: [local] is not supported: weights of its own at every position are quantised by nobody's kernels",
        ),
        (NET + "[convolutional]\nfilters=eight\n", "t.cfg:6: filters=eight is not a whole number from 1 to 65536"),
        (NET + "[convolutional]\nfilters=1e3\n", "t.cfg:6: filters=1e3 is not a whole number from 1 to 65536"),
        (NET + "[convolutional]\nfilters=70000\n", "t.cfg:6: filters=70000 is out of range; use 1 to 65536"),
        (
            NET + "[convolutional]\nactivation=lekay\n",
            "t.cfg:6: activation=lekay is not supported; use one of " + ", ".join(ACTIVATIONS),
        ),
        (NET + "[convolutional]\nxnor=1\n", "t.cfg:6: xnor=1 is not supported in [convolutional]; only xnor=0 is"),
        (
            NET + "[convolutional]\nsize=21\n",
            "t.cfg:5: a window of 21 does not fit into the input of 32x16 with 0 of padding; lower size or raise pad",
        ),
        (
            NET + "[route]\nlayers=-1\n",
            "t.cfg:6: layers names layer -1, which is not before this layer 0; the first layer can name none",
        ),
        (
            NET + CONV + "[route]\nlayers=5\n",
            "t.cfg:12: layers names layer 5, which is not before this layer 1; use -1 to -1 or 0 to 0",
        ),
        (
            NET + CONV + "[shortcut]\nfrom=-1\nactivation=linear\n[shortcut]\nfrom=-3\n",
            "t.cfg:15: from names layer -3, which is not before this layer 2; use -2 to -1 or 0 to 1",
        ),
        (
            NET + CONV + "[yolo]\nnum=1\nanchors=1,2\nclasses=2\n",
            "t.cfg:11: [yolo] with 1 anchors and 2 classes needs 7 channels, but the layer before has 8; set filters=7 there",
        ),
        (
            NET + CONV.replace("filters=8", "filters=8\nantialiasing=1") + CONV + "[route]\nlayers=0\n",
            "t.cfg:19: layers names layer 0, which has antialiasing: Darknet mixes up its shapes there; only the layer behind "
            "it can read it",
        ),
    ],
)
def test_bad_cfg_is_one_line(text: str, message: str) -> None:
    with pytest.raises(FormatError) as excinfo:
        parse_cfg(text, "t.cfg")
    assert str(excinfo.value) == message


def test_unsupported_keys_pass_at_the_value_that_changes_nothing() -> None:
    sections = "[upsample]\nscale=1.0\n[shortcut]\nfrom=-1\nweights_type=none\n"
    assert parse_cfg(NET + CONV + "xnor=0\nantialiasing=0\n" + sections).warnings == ()
    with pytest.raises(FormatError, match=r"^t.cfg:11: xnor=1 is not supported in \[convolutional\]; only xnor=0 is$"):
        parse_cfg(NET + CONV + "xnor=1\n", "t.cfg")


@pytest.mark.parametrize(
    ("section", "warning"),
    [
        ("[convolutional]\nfilters=4\nfilters=8\n", "t.cfg:7: filters=8 contradicts line 6, which counts, as in Darknet"),
        (
            "[convolutional]\nfilters=7\nactivation=leaky # as usual\n",
            "t.cfg:7: Darknet takes the comment for a part of the word 'leaky', which it then does not know; put comments on "
            "lines of their own",
        ),
        (
            "[convolutional]\nfilters=7\nactivation=linear\n[yolo]\nnum=1\nclasses=2\nanchors=3\n",
            "t.cfg:8: anchors holds 1 numbers for num=1; Darknet takes 0.5 for those that are missing, and so does mpnet",
        ),
    ],
)
def test_what_darknet_takes_otherwise_is_warned_of(section: str, warning: str) -> None:
    assert warning in parse_cfg(NET + section, "t.cfg").warnings


def test_every_kind_of_layer_is_declared_to_be_read() -> None:
    assert set(READERS) == {kind.kind for kind in LAYER_KINDS}


def test_a_row_is_all_that_reading_a_new_section_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(READERS, "toy", SectionReader(keeps_shape(EmptySpec), "teach", only={"odd": "0"}, alexeyab=True))
    network = parse_cfg("[net]\nwidth=8\nheight=6\nchannels=3\n[toy]\nteach=1\nodd=0\n")
    assert [layer.out_shape for layer in network.layers] == [(6, 8, 3)]
    assert (network.warnings, network.dialect) == ((), "alexeyab")


def test_yolo_refuses_other_precisions() -> None:
    text = NET + CONV.replace("filters=8", "filters=7") + "[yolo]\nnum=1\nanchors=1,2\nclasses=2\nint8=1\n"
    with pytest.raises(PrecisionError, match=r"^t.cfg:15: \[yolo\] is always fp32; remove int8=1$"):
        parse_cfg(text, "t.cfg")


def test_training_keys_are_silent_and_unknown_ones_are_listed() -> None:
    text = NET + "learning_rate=0.001\nmomentum=.9\n" + CONV + "stopbackward=1\nfrobnicate=3\n"
    assert parse_cfg(text, "t.cfg").warnings == ("t.cfg:14: unknown key 'frobnicate' in [convolutional] is ignored",)


@pytest.mark.parametrize(
    "text",
    [
        "[net]\nwidth=16384\nheight=16384\n" + "[convolutional]\nfilters=65536\n",
        "[net]\nwidth=64\nheight=64\n" + "[upsample]\nstride=64\n" * 3,
        NET + "[convolutional]\nfilters=65536\n[convolutional]\nfilters=65536\n",
        NET + "[maxpool]\n" * 1001,
        NET + "[yolo]\nanchors=" + "1," * 1500 + "1\n",
        NET + "[convolutional]\nfilters=" + "9" * 3000 + "\n",
        "[net]\n#" + "x" * 5000 + "\n",
    ],
)
def test_oversized_requests_are_refused(text: str) -> None:
    with pytest.raises(FormatError, match=r"^t\.cfg:\d+: .*(limit|more than|not a whole number)"):
        parse_cfg(text, "t.cfg")


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "big.cfg").write_bytes(b"#" * (1 << 20) + b"\n")
    (tmp_path / "binary.cfg").write_bytes(b"[net]\0\1\2")
    cases = {
        "missing.cfg": "cannot be read (No such file or directory); check the path",
        "": "is a folder; name a cfg",
        "big.cfg": "is larger than 1.05 MB; this is no cfg",
        "binary.cfg": "this is a binary file, not a cfg (are cfg and weights swapped?)",
    }
    for name, message in cases.items():
        path = tmp_path / name
        with pytest.raises(FormatError) as excinfo:
            read_cfg(path)
        assert str(excinfo.value) == f"{path}: {message}"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("yolov3-tiny.cfg", "fffffffffffff"),
        ("yolov3-tiny-fp16.cfg", "hhhhhhhhhhhhh"),
        ("yolov3-tiny-int8.cfg", "qqqqqqqqqqqqq"),
        ("yolov3-tiny-mixed.cfg", "hqqqqqqqqfqqf"),
    ],
)
def test_shipped_networks(repository: Path, name: str, expected: str) -> None:
    network = read_cfg(repository / "cfg" / name)
    keys = [layer.declared or network.declared for layer in network.convolutions]
    assert (
        "".join(layer_declared.precision.code for layer_declared in keys if layer_declared and layer_declared.precision)
        == expected
    )
    assert (network.in_shape, len(network.layers), network.warnings) == ((416, 416, 3), 24, ())
    # The official weights have 35,434,956 bytes, 20 of them header.
    assert network.parameters == (35_434_956 - 20) // 4
    assert [yolo.mask for yolo in network.yolos] == [(3, 4, 5), (1, 2, 3)]


@pytest.mark.parametrize("name", ["yolov3-tiny", "yolov3-tiny-fp16", "yolov3-tiny-int8", "yolov3-tiny-mixed"])
def test_the_published_mask_is_known_by_the_layers_whatever_else_the_cfg_says(repository: Path, name: str) -> None:
    corrected = (repository / "cfg" / f"{name}.cfg").read_text()
    assert parse_cfg(corrected, "t.cfg").warnings == ()
    published = corrected.replace("mask=1,2,3", "mask = 0,1,2")
    line = 1 + published[: published.rindex("[yolo]")].count("\n")
    for text in (published, published.replace("416", "608"), published.replace("stride=1\n", "# a comment\n stride = 1\n", 1)):
        [warning] = parse_cfg(text, "t.cfg").warnings
        assert warning.startswith(f"t.cfg:{line + (text.count(chr(10)) - published.count(chr(10)))}: mask = 0,1,2 is that of")
        assert "use cfg/yolov3-tiny.cfg" in warning


def test_a_network_of_ones_own_may_have_the_published_mask(repository: Path) -> None:
    text = (repository / "cfg" / "yolov3-tiny.cfg").read_text().replace("mask=1,2,3", "mask=0,1,2")
    custom = text.replace("filters=255", "filters=24").replace("classes=80", "classes=3")
    assert parse_cfg(custom, "t.cfg").warnings == ()


YOLOV4_TINY_STEM = (
    NET.replace("32", "64").replace("16", "64")
    + """
[convolutional]
batch_normalize=1
filters=32
size=3
stride=2
pad=1
activation=leaky
[route]
layers=-1
groups=2
group_id=1
[convolutional]
filters=16
size=3
pad=1
activation=mish
[route]
layers=-1,-2
[shortcut]
from=0
activation=linear
[dropout]
probability=.15
[convolutional]
filters=14
size=1
activation=linear
[yolo]
mask=0,1
anchors=10,14, 23,27
classes=2
num=2
scale_x_y=1.05
nms_kind=greedynms
beta_nms=0.6
iou_loss=ciou
resize=1.5
"""
)


def test_yolov4_keys() -> None:
    network = parse_cfg(YOLOV4_TINY_STEM)
    assert network.warnings == ()
    assert [layer.out_shape[2] for layer in network.layers] == [32, 16, 16, 32, 32, 32, 14, 14]
    yolo = network.layers[-1]
    assert isinstance(yolo, YoloSpec)
    assert (yolo.scale_x_y, yolo.nms_kind, yolo.head_anchors) == (1.05, "greedynms", ((10.0, 14.0), (23.0, 27.0)))


@pytest.mark.parametrize("name", ["aix2022/yolov3-tiny-aix2022", "yolo-fastest/yolo-fastest-1.1"])
def test_real_networks_have_the_reference_shapes(shared_data: Path, name: str) -> None:
    network: NetworkSpec = read_cfg(shared_data / f"{name}.cfg")
    golden = np.load(shared_data / "golden" / f"golden_{name.split('/')[1]}.npz")
    assert network.warnings == ()
    assert [layer.kind for layer in network.layers] == golden["layer_types"].tolist()
    assert [(c, h, w) for h, w, c in (layer.out_shape for layer in network.layers)] == [
        tuple(shape) for shape in golden["layer_shapes"].tolist()
    ]


def test_pooling_windows_never_lie_outside() -> None:
    with pytest.raises(MpnetError, match="puts whole windows of 2 outside the input"):
        parse_cfg(NET + "[maxpool]\nsize=2\nstride=1\npadding=8\n")
    assert isinstance(parse_cfg(NET + "[maxpool]\nsize=2\nstride=1\npadding=2\n").layers[0], MaxpoolSpec)


def test_strides_per_axis_without_a_common_one() -> None:
    layer = parse_cfg(NET + "[convolutional]\nsize=3\npad=1\nstride_x=2\nstride_y=2\n").layers[0]
    assert isinstance(layer, ConvolutionSpec)
    assert (layer.stride, layer.sample, layer.out_shape) == (2, (1, 1), (8, 16, 1))
    layer = parse_cfg(NET + "[convolutional]\nsize=3\npad=1\nstride_x=4\nstride_y=2\n").layers[0]
    assert isinstance(layer, ConvolutionSpec)
    assert (layer.stride, layer.sample, layer.out_shape) == (2, (2, 1), (8, 8, 1))


def test_a_kernel_of_one_pixel_has_no_dilation() -> None:
    layer = parse_cfg(NET + "[convolutional]\nsize=1\npadding=1\ndilation=3\n").layers[0]
    assert isinstance(layer, ConvolutionSpec)
    assert (layer.dilation, layer.padding, layer.out_shape) == (1, 1, (18, 34, 1))


@pytest.mark.parametrize(
    ("width", "height", "sizes"),
    [
        (60, 64, "width=60 is no multiple of 8: set width=56 or width=64"),
        (64, 44, "height=44 is no multiple of 8: set height=40 or height=48"),
        (
            60,
            44,
            "width=60 is no multiple of 8: set width=56 or width=64; height=44 is no multiple of 8: set height=40 or height=48",
        ),
    ],
)
def test_a_size_that_strides_do_not_divide_is_named(width: int, height: int, sizes: str) -> None:
    """Of 60 pixels three strides of 2 make 8, and upsampling 16, beside 15 of the layer before."""
    text = f"[net]\nwidth={width}\nheight={height}\n" + CONV * 3 + "[upsample]\nstride=2\n[route]\nlayers=-1,1\n"
    with pytest.raises(FormatError) as error_info:
        parse_cfg(text, "t.cfg")
    message = str(error_info.value)
    assert message.startswith(f"t.cfg:1: the strides up to here ask for multiples of 8, and {sizes} (25: layers 3 (")
    assert message.endswith("differ in width or height)")
    parse_cfg(text.replace(f"width={width}", "width=64").replace(f"height={height}", "height=40"))


def test_sizes_are_not_blamed_where_other_layers_would_not_fit_either() -> None:
    text = "[net]\nwidth=60\nheight=60\n" + CONV * 2 + "[route]\nlayers=-1,0\n"
    with pytest.raises(FormatError, match=r"^t.cfg:17: layers 1 \(15x15x8\) and 0 \(30x30x8\) differ in width or height$"):
        parse_cfg(text, "t.cfg")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            NET + CONV.replace("filters", "Filters") + "[yolo]\nclasses=3\nnum=1\nanchors=1,1\n",
            "t.cfg:6: unknown key 'Filters' in [convolutional] is ignored; did you mean 'filters'? As it is, line 11: [yolo] "
            "with 1 anchors and 3 classes needs 8 channels, but the layer before has 1; set filters=8 there",
        ),
        (
            NET + CONV + "[route]\nLayer=-1\n",
            "t.cfg:12: unknown key 'Layer' in [route] is ignored; did you mean 'layers'? As it is, line 11: layers is missing; "
            "say which layers to join, for example layers=-1,8",
        ),
        (
            "[net]\nWidth=32\nHeight=32\n" + CONV,
            "t.cfg:2: unknown key 'Width' in [net] is ignored; did you mean 'width'? [net] must say the width and "
            "height of the image",
        ),
        (
            NET + CONV + "[yolo]\nclasses=3\nnum=6\nanchors=1,1,2,2,3,3,4,4,5,5,6,6\n",
            "t.cfg:11: [yolo] has no mask, so all its 6 anchors count, which need 48 channels; the layer before has 8, for 1 "
            "of them: name them, such as mask=0",
        ),
    ],
)
def test_the_cause_of_an_error_is_named_where_it_lies_elsewhere(text: str, message: str) -> None:
    with pytest.raises(FormatError) as error_info:
        parse_cfg(text, "t.cfg")
    assert str(error_info.value) == message


def test_an_unknown_key_of_another_section_is_not_blamed_for_what_it_cannot_cause() -> None:
    text = NET + CONV + "Pad=1\n[route]\nlayers=7\n"
    with pytest.raises(FormatError, match=r"^t.cfg:12: layers names layer 7"):
        parse_cfg(text.replace("pad=1\n", ""), "t.cfg")


def test_a_key_spelt_almost_as_one_is_named_with_it() -> None:
    text = NET + CONV.replace("stride=2", "Stride=2")
    assert parse_cfg(text, "t.cfg").warnings == (
        "t.cfg:8: unknown key 'Stride' in [convolutional] is ignored; did you mean 'stride'?",
    )
