# SPDX-License-Identifier: Apache-2.0
"""Decodes a .png or .pgm that `ringattn plan --mask` drew and compares it with the .npy of the same
mask: picture.py PICTURE MASK.npy. Needs nothing but Python."""

import ast
import struct
import sys
import zlib

GAP, SIDE_LEAST, BETWEEN_TILES = 4, 256, 128


def read_npy(path):
    data = open(path, "rb").read()
    length = struct.unpack("<H", data[8:10])[0]
    shape = ast.literal_eval(data[10 : 10 + length].decode())["shape"]
    return (1, *shape)[-3:], data[10 + length :]


def read_png(data):
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, {}
    while at < len(data):
        length, name = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        assert zlib.crc32(name + body) == struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0]
        chunks[name] = body
        at += 12 + length
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    width, height, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert rest == [8, 0, 0, 0, 0]
    lines = zlib.decompress(chunks[b"IDAT"])
    assert len(lines) == height * (width + 1)
    assert not any(lines[:: width + 1])
    return width, height, b"".join(
        lines[y * (width + 1) + 1 : (y + 1) * (width + 1)] for y in range(height)
    )


def read_pgm(data):
    magic, size, most, pixels = data.split(b"\n", 3)
    assert magic == b"P5" and most == b"255"
    width, height = map(int, size.split())
    return width, height, pixels


def main(picture, mask):
    data = open(picture, "rb").read()
    width, height, pixels = read_png(data) if picture.endswith(".png") else read_pgm(data)
    (heads, queries, keys), seen = read_npy(mask)
    zoom, most = -(-SIDE_LEAST // max(queries, keys)), max(max(seen), 1)
    columns = next(c for c in range(1, heads + 1) if c * c >= heads)
    rows = -(-heads // columns)
    assert width == columns * (keys * zoom + GAP) - GAP
    assert height == rows * (queries * zoom + GAP) - GAP
    assert len(pixels) == width * height
    for y in range(height):
        row, py = divmod(y, queries * zoom + GAP)
        for x in range(width):
            column, px = divmod(x, keys * zoom + GAP)
            head, want = row * columns + column, BETWEEN_TILES
            if head < heads and py < queries * zoom and px < keys * zoom:
                want = 255 - 255 * seen[(head * queries + py // zoom) * keys + px // zoom] // most
            assert pixels[y * width + x] == want, (x, y)


main(*sys.argv[1:])
