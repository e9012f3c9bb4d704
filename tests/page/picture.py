"""Pictures of a page, made small enough that fonts and their smoothing do not matter: means of brightness on a grid."""

import struct
import zlib

COLUMNS, ROWS = 24, 30


def pixels(png):
    """Width, height and rows of (red, green, blue) bytes of a PNG with 8 bits a channel, as browsers write them."""
    at, data, header = 8, b"", None
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at:at + 8])
        body = png[at + 8:at + 8 + size]
        if kind == b"IHDR":
            header = struct.unpack(">IIBB", body[:10])
        elif kind == b"IDAT":
            data += body
        at += size + 12
    width, height, depth, color = header
    assert depth == 8 and color in (2, 6), (depth, color)
    channels = 3 if color == 2 else 4
    raw, rows, before = zlib.decompress(data), [], bytearray(width * channels)
    stride = width * channels + 1
    for y in range(height):
        how, line = raw[y * stride], bytearray(raw[y * stride + 1:(y + 1) * stride])
        for x in range(len(line)):
            left = line[x - channels] if x >= channels else 0
            above = before[x]
            corner = before[x - channels] if x >= channels else 0
            if how == 1:
                line[x] = line[x] + left & 255
            elif how == 2:
                line[x] = line[x] + above & 255
            elif how == 3:
                line[x] = line[x] + (left + above) // 2 & 255
            elif how == 4:
                guess = left + above - corner
                nearest = min((left, above, corner), key=lambda value: abs(guess - value))
                line[x] = line[x] + nearest & 255
        rows.append(line)
        before = line
    return width, height, channels, rows


def brightness(png):
    """ROWS lists of COLUMNS means, 0 to 255."""
    width, height, channels, rows = pixels(png)
    grid = []
    for row in range(ROWS):
        lines = rows[row * height // ROWS:(row + 1) * height // ROWS]
        means = []
        for column in range(COLUMNS):
            first, last = column * width // COLUMNS, (column + 1) * width // COLUMNS
            total = sum(sum(line[first * channels + c:last * channels:channels]) for line in lines for c in range(3))
            means.append(round(total / (3 * len(lines) * (last - first))))
        grid.append(means)
    return grid


def difference(one, other):
    """The mean and the largest difference of two grids."""
    apart = [abs(a - b) for row, other_row in zip(one, other, strict=True) for a, b in zip(row, other_row, strict=True)]
    return sum(apart) / len(apart), max(apart)
