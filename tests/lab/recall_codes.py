"""Two binary codes whose words are far apart: what the recall model's tokens are made of.

Words are rows of +1 and -1, so that the dot product of two words of length n is n minus twice their
Hamming distance, and the product of a word with itself is n.
"""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORDS: Final = 4096
_FIELD_BITS: Final = 5  # GF(32)
_FIELD_POLYNOMIAL: Final = 0b100101  # x^5 + x^2 + 1


def _multiply(left: int, right: int) -> int:
    """Product in GF(32)."""
    product = 0
    while right:
        if right & 1:
            product ^= left
        left <<= 1
        if left >> _FIELD_BITS:
            left ^= _FIELD_POLYNOMIAL
        right >>= 1
    return product


def _power(base: int, exponent: int) -> int:
    """Power in GF(32)."""
    power = 1
    for _ in range(exponent):
        power = _multiply(power, base)
    return power


def _trace(element: int) -> int:
    """Trace from GF(32) to GF(2): the sum of the five conjugates, 0 or 1."""
    total = 0
    for bit in range(_FIELD_BITS):
        total ^= _power(element, 2**bit)
    return total


def _quadratic_form(factor: int, point: int, extra: int) -> int:
    """f_a(x, e) = Tr((a x)^3) + Tr((a x)^5) + e Tr(a x), one Kerdock form for each a in GF(32)."""
    scaled = _multiply(factor, point)
    return _trace(_power(scaled, 3)) ^ _trace(_power(scaled, 5)) ^ (extra & _trace(scaled))


def kerdock() -> NDArray[np.float64]:
    """The Kerdock code of length 64, `[4096, 64]`: two different words have a dot product <= 8.

    Each of the 32 quadratic forms is taken with all 128 affine functions of six bits.
    """
    points = [(point, extra) for point in range(32) for extra in (0, 1)]
    quadratic = np.array([[_quadratic_form(a, x, e) for x, e in points] for a in range(32)])
    bits = np.array([[(x >> bit) & 1 for bit in range(5)] + [e, 1] for x, e in points])
    affine = np.array(list(itertools.product((0, 1), repeat=7))) @ bits.T
    words: NDArray[np.int64] = (quadratic[:, None, :] + affine[None, :, :]) % 2
    return (1 - 2 * words.reshape(WORDS, 64)).astype(np.float64)


def reed_muller() -> NDArray[np.float64]:
    """A subcode of RM(2, 5), `[4096, 32]`: two different words have a dot product <= 16."""
    bits = np.array([[(point >> bit) & 1 for bit in range(5)] for point in range(32)]).T
    products = [bits[i] & bits[j] for i, j in itertools.combinations(range(5), 2)][:6]
    generators = np.array([np.ones(32, dtype=int), *bits, *products])
    messages = (np.arange(WORDS)[:, None] >> np.arange(12)) & 1
    words: NDArray[np.int64] = (messages @ generators) % 2
    return (1 - 2 * words).astype(np.float64)


def shuffled(code: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """The same words in another order: neighbours in the vocabulary must not be so in the code."""
    order = list(range(len(code)))
    random.Random(seed).shuffle(order)  # noqa: S311 - the same order every time is the point
    return code[order]
