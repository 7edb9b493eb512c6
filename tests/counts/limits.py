# SPDX-License-Identifier: MIT
"""What the compiled kernels of every table may cost: the one place with numbers. A regression of 3 % fails.

Numbers are those measured when the line was last changed (gcc 12 and 11, clang 14 and 19, llvm-mca 19, QEMU 7.2); what
became cheaper gets a new number here. The scalar table is the reference of the others, not a fast path, and has none.
"""

from __future__ import annotations

from dataclasses import dataclass

TOLERANCE = 1.03


@dataclass(frozen=True)
class HotLoop:
    """The depth loop of a table's full register tile, as compiled; _single: for panels of one vector; windows: of first layers.

    source:       file in csrc/arch; `function` holds the loop, whose multiplications are `multiply`, a regular expression.
    multiplies:   vector multiplications of one iteration.
    instructions: of one iteration, whoever compiles it.
    cycles:       of one iteration, by llvm-mca's model of a core.
    stores:       whether storing vectors is what the loop is for, not waste.
    stacked:      vectors that its whole function may store to the stack; None: any number. Where the output stage follows in
                  the same function, sums stay in registers, but for those that wait while exponentials are computed.

    unpack: narrow weights, with and without groups: the worst of the loops with as many multiplications; winograd_weights: of
    Winograd, transformed. packs_L, floats_L: with the output stage of linear and leaky. columns: four depthwise results;
    strips: 64 results of few channels.
    output_usual: eight vectors of sums, to floats and to codes. dw_row, dw_row_3x3: eight and three depthwise pixels of int16.
    """

    table: str
    source: str
    function: str
    multiply: str
    multiplies: int
    instructions: int
    cycles: dict[str, float]
    stores: bool = False
    stacked: int | None = None

    def __str__(self) -> str:
        return f"{self.table}-{self.function}-{self.multiplies}" if self.stores else f"{self.table}-{self.function}"


# Cascade Lake makes two 512-bit multiplications a cycle, and is the model that tells a good VNNI tile from a bad one. AVX2 is
# modelled as Haswell, the first that had it.
HOT_LOOPS = (
    HotLoop("avx512amx", "x86_avx512amx.c", "block", "tdpbssd", 4, 22, {}),  # llvm-mca 19 models no tiles
    HotLoop("avx512vnni", "x86_avx512vnni.c", "tile_u8", "vpdpbusd", 24, 44, {"cascadelake": 13.07}, stacked=73),
    HotLoop("avx512vnni", "x86_avx512vnni.c", "tile_u8_full_packs_L", "vpdpbusd", 24, 44, {"cascadelake": 13.07}, stacked=2),
    HotLoop(
        "avx512vnni", "x86_avx512vnni.c", "tile_f32_full_floats_L", r"vfmadd\d+ps", 24, 44, {"cascadelake": 13.07}, stacked=3
    ),
    HotLoop("avx512vnni", "x86_avx512vnni.c", "tile_u8_single", "vpdpbusd", 12, 29, {"cascadelake": 8.46}),
    HotLoop("avx512vnni", "x86_avx512vnni.c", "tile_f32_single", r"vfmadd\d+ps", 12, 17, {"cascadelake": 6.52}),
    HotLoop("avx512vnni", "x86_avx512vnni.c", "tile_s16", "vpdpwssd", 24, 44, {"cascadelake": 13.07}),
    HotLoop("avx512vnni", "x86_avx512vnni.c", "tile_s16_single", "vpdpwssd", 12, 29, {"cascadelake": 8.46}),
    HotLoop("avx512vnni", "x86_avx512vnni.c", "columns_3_1_4", "vpdpbusd", 48, 410, {}, stores=True, stacked=0),
    HotLoop("avx512vnni", "x86_avx512vnni.c", "columns_5_1_4", "vpdpbusd", 160, 1272, {}, stores=True, stacked=0),
    HotLoop("avx512vnni", "x86_avx512vnni.c", "strips_", "vpdpbusd", 12, 240, {}, stores=True, stacked=0),
    HotLoop("avx512", "x86_avx512.c", "tile_s16_single", "vpmaddwd", 12, 41, {"cascadelake": 12.52}),
    HotLoop("avx512", "x86_avx512.c", "tile_s16", "vpmaddwd", 24, 68, {"cascadelake": 21.9}, stacked=73),
    HotLoop("avx512", "x86_avx512.c", "tile_s16_full_packs_L", "vpmaddwd", 24, 68, {"cascadelake": 21.9}, stacked=2),
    HotLoop("avx512", "x86_avx512.c", "tile_f32_full_floats_L", r"vfmadd\d+ps", 24, 44, {"cascadelake": 13.07}, stacked=3),
    HotLoop("avx512vnni", "x86_avx512vnni.c", "windows_f32", r"vfmadd\d+ps", 36, 63, {"cascadelake": 19.07}),
    HotLoop("avx512vnni", "x86_avx512vnni.c", "windows_i8", "vpdpbusd", 12, 31, {"cascadelake": 8.52}),
    HotLoop("avx512", "x86_avx512.c", "windows_f32", r"vfmadd\d+ps", 36, 63, {"cascadelake": 19.07}),
    HotLoop("avx512", "x86_avx512.c", "windows_i8", "vpmaddwd", 12, 43, {"cascadelake": 12.41}),
    HotLoop("avx2", "x86_avx2.c", "windows_f32", r"vfmadd\d+ps", 8, 20, {"haswell": 5.07}),
    HotLoop("avx2", "x86_avx2.c", "windows_i8", "vpmaddwd", 8, 28, {"haswell": 8.08}),
    HotLoop("avx2", "x86_avx2.c", "tile_s16", "vpmaddwd", 12, 38, {"haswell": 12.08}),
    HotLoop("avx2", "x86_avx2.c", "tile_bytes_2", "vpmaddubsw", 24, 86, {"haswell": 36.1}),
    HotLoop("avx2", "x86_avx2.c", "tile_bytes_4", "vpmaddubsw", 48, 164, {"haswell": 61.1}),
    HotLoop("avx2", "x86_avx2.c", "tile_bytes_groups_2", "vpmaddubsw", 24, 87, {"haswell": 36.13}),
    HotLoop("avx2", "x86_avx2.c", "tile_bytes_groups_4", "vpmaddubsw", 48, 167, {"haswell": 61.12}),
    HotLoop("avx2", "x86_avx2.c", "tile_f32", r"vfmadd\d+ps", 12, 26, {"haswell": 6.57}),
    HotLoop("avx2", "x86_avx2.c", "points_f32", r"vfmadd\d+ps", 12, 30, {"haswell": 7.57}),
    HotLoop("avx2", "x86_avx2.c", "points_s16", "vpmaddwd", 12, 42, {"haswell": 12.08}),
    HotLoop("avx512vnni", "x86_avx512vnni.c", "unpack", "vp(add|sub)b", 2, 24, {"cascadelake": 7.11}, stores=True),
    HotLoop("avx2", "x86_avx2.c", "unpack", "vp(add|sub)b", 4, 43, {"haswell": 12.1}, stores=True),
    HotLoop("avx2", "x86_avx2.c", "unpack", "vpmullw", 8, 83, {"haswell": 26.09}, stores=True),
    HotLoop("avx2", "x86_avx2.c", "winograd_weights", "vpmovsxbw", 9, 137, {"haswell": 49.05}, stores=True),
    HotLoop("neon", "arm_neon.c", "tile_f32", "fmla", 64, 78, {"cortex-a57": 64.08, "neoverse-n1": 32.06}),
    HotLoop("neon", "arm_neon.c", "tile_s8", "sadalp", 16, 56, {"cortex-a57": 32.09, "neoverse-n1": 32.08}),
    HotLoop("neon", "arm_neon.c", "tile_s16", r"smlal2?\s+v\d+\.4s", 128, 150, {"cortex-a57": 128.1, "neoverse-n1": 128.08}),
    HotLoop("neon", "arm_neon.c", "quantize", "fcvtns", 4, 36, {"cortex-a57": 32.2, "neoverse-n1": 23.09}, stores=True),
    HotLoop("neon", "arm_neon.c", "quantize", "fcvtns", 8, 41, {"cortex-a57": 30.17, "neoverse-n1": 23.47}, stores=True),
    HotLoop(
        "neon",
        "arm_neon.c",
        "output_usual",
        r"st1\s+\{v\d+\.4s",
        4,
        66,
        {"cortex-a57": 58.07, "neoverse-n1": 36.04},
        stores=True,
    ),
    HotLoop("neon", "arm_neon.c", "output_usual", "fcvtns", 8, 86, {"cortex-a57": 61.2, "neoverse-n1": 48.13}, stores=True),
    HotLoop("neon", "arm_neon.c", "dw_row_3x3", "smlal", 54, 71, {"cortex-a57": 54.06, "neoverse-n1": 54.06}, stores=True),
    HotLoop("neon", "arm_neon.c", "dw_row", "smlal", 16, 29, {"cortex-a57": 16.09, "neoverse-n1": 16.08}),
    HotLoop("neon_fp16", "arm_neon_fp16.c", "tile_f16", r"fmla\s+v\d+\.8h", 128, 146, {"neoverse-n1": 64.06}),
    HotLoop("neon_dotprod", "arm_neon_dotprod.c", "tile_dot", "sdot", 64, 78, {"neoverse-n1": 32.05}),
    HotLoop("neon_dotprod", "arm_neon_dotprod.c", "unpack", r"mul\s+v\d+\.8h", 8, 79, {"neoverse-n1": 40.07}, stores=True),
    HotLoop("neon_i8mm", "arm_neon_i8mm.c", "tile_mmla_pairs", "smmla", 24, 33, {"neoverse-n2": 12.06, "neoverse-v1": 6.06}),
    HotLoop("neon_i8mm", "arm_neon_i8mm.c", "tile_mmla_apart", "smmla", 24, 39, {"neoverse-n2": 13.57, "neoverse-v1": 6.83}),
)


@dataclass(frozen=True)
class Executed:
    """Instructions per multiply-accumulate that an emulated core executes, compiled by Debian 12's gcc 12.

    tile:         of a whole register tile.
    convolutions: of whole convolutions, 3x3, 1x1 and a pooled first layer, with padding, conversion, activation, range and
                  quantisation.
    """

    table: str
    cpu: str
    precision: str
    tile: float
    convolutions: tuple[float, float, float]


EXECUTED = (
    Executed("neon", "cortex-a57", "fp32", 0.306, (0.313, 0.314, 0.552)),
    Executed("neon", "cortex-a57", "fp16", 0.306, (0.315, 0.322, 0.599)),
    Executed("neon", "cortex-a57", "int8", 0.225, (0.111, 0.238, 0.441)),
    Executed("neon", "cortex-a57", "int6", 0.225, (0.114, 0.241, 0.441)),
    Executed("neon", "cortex-a57", "int6_groups", 0.225, (0.116, 0.255, 0.443)),
    Executed("neon", "cortex-a57", "int4_groups", 0.225, (0.116, 0.254, 0.443)),
    Executed("neon", "cortex-a57", "int16", 0.295, (0.223, 0.481, 0.830)),
    Executed("neon_fp16", "a64fx", "fp16_half", 0.144, (0.151, 0.155, 0.390)),
    Executed("neon_fp16", "a64fx", "fp16_half_winograd", 0.144, (0.065, 0.155, 0.390)),
    Executed("neon_dotprod", "cortex-a76", "int8", 0.078, (0.086, 0.087, 0.194)),
    Executed("neon_dotprod", "cortex-a76", "int6", 0.078, (0.087, 0.090, 0.194)),
    Executed("neon_dotprod", "cortex-a76", "int6_groups", 0.078, (0.087, 0.093, 0.196)),
    Executed("neon_dotprod", "cortex-a76", "int4_groups", 0.078, (0.087, 0.091, 0.196)),
    Executed("neon_dotprod", "cortex-a76", "int16", 0.078, (0.175, 0.181, 0.917)),
    Executed("neon_i8mm", "max,sve=off", "int8", 0.0445, (0.053, 0.061, 0.195)),
    Executed("neon_i8mm", "max,sve=off", "int16", 0.0445, (0.109, 0.128, 0.785)),
)
