# SPDX-License-Identifier: MIT
"""The demands of an image file on a decoder, found by walking its parts before any decoder sees them.

Decoders believe what a file says: a chunk of 4 GB is allocated, 2,000 scans over one image are decoded. Here lengths are
held against the file's size, and work against limits, at the price of one pass over the bytes.
"""

from __future__ import annotations

import struct

from mpnet.formats.images.jpeg_segments import START_OF_SCAN, iterate_segments
from mpnet.messages import count_text

MAX_SCAN_PIXELS = 1_200_000_000
"""Scans x pixels of a JPEG: 12 scans (a progressive file has about 10) of the largest image, some seconds of work."""
MAX_PARTS = 100_000
_PNG_START = b"\x89PNG\r\n\x1a\n"
_PNG_PIXELS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")
_DEFLATE = 1032  # bytes that one byte of deflate can become, at most
_BMP_HEADERS = (12, 40, 52, 56, 64, 108, 124)


def walk(data: bytes, width: int, height: int) -> bytes:
    """Return the part of a file's bytes that makes its pixels; to be given to a decoder.

    width, height: what its header says, within the limits. Raises: ValueError saying what is wrong with the file.
    """
    if data[:2] == b"\xff\xd8":
        return _jpeg(data, width * height)
    if data[:8] == _PNG_START:
        return _png(data, width, height)
    if data[:4] == b"RIFF":
        return _webp(data)
    if data[:2] == b"BM":
        return _bmp(data, width, height)
    # PPM and PGM: a byte, or in text at least a digit and often a space, for every sample.
    samples = width * height * (3 if data[:2] in (b"P3", b"P6") else 1)
    if samples > len(data):
        raise ValueError(f"{width} x {height} pixels cannot be in {len(data)} bytes")
    return data


def _jpeg(data: bytes, pixels: int) -> bytes:
    scans = 0
    for count, segment in enumerate(iterate_segments(data), 1):
        if count == MAX_PARTS:
            raise ValueError(f"has more than {MAX_PARTS} segments")
        if segment.marker == START_OF_SCAN:
            scans += 1
            if scans * pixels > MAX_SCAN_PIXELS and scans > 1:
                raise ValueError(
                    f"more than {scans - 1} scans over {count_text(pixels)} pixels are beyond the limit "
                    f"({count_text(MAX_SCAN_PIXELS)} scans x pixels)"
                )
    return data


def _png(data: bytes, width: int, height: int) -> bytes:
    chunks, offset, packed = [_PNG_START], 8, 0
    for _ in range(MAX_PARTS):
        if offset >= len(data):
            break
        length, kind = int.from_bytes(data[offset : offset + 4], "big"), data[offset + 4 : offset + 8]
        end = offset + 12 + length
        if end > len(data):
            raise ValueError(f"chunk {kind!r} at byte {offset} says {length} bytes, {max(0, len(data) - offset - 12)} are left")
        # Texts, profiles and animations, which may unpack to gigabytes, are not looked at.
        if kind in _PNG_PIXELS:
            chunks.append(data[offset:end])
            packed += length if kind == b"IDAT" else 0
        if kind == b"IEND":
            break
        offset = end
    else:
        raise ValueError(f"has more than {MAX_PARTS} chunks")
    depth, colour = data[24], data[25]
    line_bytes = 1 + width * depth * {2: 3, 4: 2, 6: 4}.get(colour, 1) // 8
    if height * line_bytes > _DEFLATE * packed + 64:
        raise ValueError(f"{width} x {height} pixels cannot be in {packed} bytes of data")
    return b"".join(chunks)


def _webp(data: bytes) -> bytes:
    if 8 + int.from_bytes(data[4:8], "little") > len(data) + 1:  # some writers leave the last padding byte out
        raise ValueError("is shorter than its header says")
    offset = 12
    for _ in range(MAX_PARTS):
        if offset + 8 > len(data):
            return data
        length = int.from_bytes(data[offset + 4 : offset + 8], "little")
        if offset + 8 + length > len(data):
            raise ValueError(
                f"chunk {data[offset : offset + 4]!r} at byte {offset} says {length} bytes, {len(data) - offset - 8} are left"
            )
        offset += 8 + length + length % 2
    raise ValueError(f"has more than {MAX_PARTS} chunks")


def _bmp(data: bytes, width: int, height: int) -> bytes:
    start, header = struct.unpack("<II", data[10:18])
    if header not in _BMP_HEADERS or start > len(data):
        raise ValueError(f"its header (of {header} bytes, pixels from byte {start}) is none of a BMP")
    if header == 12:
        bits, packing = int.from_bytes(data[24:26], "little"), 0
    else:
        bits, packing = struct.unpack("<HI", data[28:34])
    line_bytes = (width * bits + 31) // 32 * 4
    if packing in (0, 3) and start + height * line_bytes > len(data):
        raise ValueError(f"{width} x {height} pixels cannot be in {len(data)} bytes")
    # Run lengths: two bytes stand for at most 255 pixels.
    if packing in (1, 2) and width * height > 128 * len(data):
        raise ValueError(f"{width} x {height} pixels cannot be in {len(data)} bytes")
    return data
