"""Write AIS sentences bit by bit, as ITU-R M.1371 has them: written apart from pyais, which reads them."""

from __future__ import annotations

SIX = "0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVW`abcdefghijklmnopqrstuvw"
TEXT = "@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_ !\"#$%&'()*+,-./0123456789:;<=>?"


def bits(*fields: tuple[int, int]) -> str:
    """Values and widths, in two's complement."""
    return "".join(format(value & ((1 << width) - 1), f"0{width}b") for value, width in fields)


def text(words: str, letters: int) -> str:
    return "".join(bits((TEXT.index(one), 6)) for one in words.ljust(letters, "@"))


def checksum(body: str) -> str:
    total = 0
    for one in body:
        total ^= ord(one)
    return f"{total:02X}"


def sentence(part: str, fill: int, *, count: int = 1, number: int = 1, group: str = "") -> str:
    body = f"AIVDM,{count},{number},{group},A,{part},{fill}"
    return f"!{body}*{checksum(body)}"


def sentences(payload: str, *, parts: int = 1, group: str = "") -> list[str]:
    """The sentences of a message, cut into so many parts."""
    fill = -len(payload) % 6
    padded = payload + "0" * fill
    armoured = "".join(SIX[int(padded[i : i + 6], 2)] for i in range(0, len(padded), 6))
    size = -(-len(armoured) // parts)
    cut = [armoured[i * size : (i + 1) * size] for i in range(parts)]
    return [
        sentence(one, fill if i == parts else 0, count=parts, number=i, group=group)
        for i, one in enumerate(cut, 1)
    ]


def tagged(line: str, time: object) -> str:
    body = f"s:rec1,c:{time}"
    return f"\\{body}*{checksum(body)}\\{line}"


def degrees(value: float, per: int = 600_000) -> int:
    return round(value * per)


def class_a(mmsi: int, lat: float, lon: float, *, sog: int = 100, cog: int = 900, kind: int = 1) -> str:
    """Types 1 to 3; speed and course in tenths."""
    first = ((kind, 6), (0, 2), (mmsi, 30), (5, 4), (0, 8), (sog, 10), (1, 1))
    where = ((degrees(lon), 28), (degrees(lat), 27), (cog, 12), (181, 9), (15, 6))
    return bits(*first, *where, (0, 2), (0, 3), (0, 1), (0, 19))


def class_b(mmsi: int, lat: float, lon: float, *, sog: int = 100, cog: int = 900) -> str:
    """Type 18."""
    first = ((18, 6), (0, 2), (mmsi, 30), (0, 8), (sog, 10), (1, 1))
    return bits(*first, (degrees(lon), 28), (degrees(lat), 27), (cog, 12), (511, 9), (15, 6), (0, 29))


def extended_b(mmsi: int, lat: float, lon: float, name: str, ship_type: int) -> str:
    """Type 19."""
    first = ((19, 6), (0, 2), (mmsi, 30), (0, 8), (100, 10), (1, 1))
    where = ((degrees(lon), 28), (degrees(lat), 27), (900, 12), (181, 9), (15, 6), (0, 4))
    return bits(*first, *where) + text(name, 20) + bits((ship_type, 8), (0, 30), (0, 4), (0, 7))


def long_range(mmsi: int, lat: float, lon: float, *, sog: int = 10, cog: int = 90) -> str:
    """Type 27: whole knots and degrees, tenths of minutes."""
    where = ((degrees(lon, 600), 18), (degrees(lat, 600), 17), (sog, 6), (cog, 9))
    return bits((27, 6), (0, 2), (mmsi, 30), (0, 1), (0, 1), (0, 4), *where, (0, 2))


def static_a(mmsi: int, name: str, ship_type: int) -> str:
    """Type 5."""
    first = bits((5, 6), (0, 2), (mmsi, 30), (0, 2), (0, 30)) + text("CALL", 7) + text(name, 20)
    return first + bits((ship_type, 8), (0, 30), (0, 4), (0, 20), (0, 8)) + text("", 20) + bits((0, 2))


def static_b(mmsi: int, name: str) -> str:
    """Type 24, part A."""
    return bits((24, 6), (0, 2), (mmsi, 30), (0, 2)) + text(name, 20) + bits((0, 8))
