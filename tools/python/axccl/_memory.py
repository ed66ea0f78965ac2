"""Arrays in memory that peers reach."""

from __future__ import annotations

import math
import operator
import sys
from typing import Any, Sequence

import numpy as np

from axccl import _core


def empty(shape: int | Sequence[int], dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """A NumPy array in memory that the other processes of this machine reach: calls on it copy nothing in between.

    Its content is arbitrary. The memory is freed with the last array that shows it. shape, dtype: as numpy.empty.

    >>> axccl.empty((2, 3), np.int16).shape
    (2, 3)
    """
    sizes = (shape,) if isinstance(shape, (int, np.integer)) else tuple(operator.index(size) for size in shape)
    if any(size < 0 for size in sizes):
        raise ValueError(f"empty: argument shape is {shape}; pass sizes of 0 or more")
    element = np.dtype(dtype)
    if element.hasobject or element.itemsize == 0:
        raise TypeError(f"empty: argument dtype is {element}; pass one of numbers")
    size = math.prod(int(one) for one in sizes)
    if size * element.itemsize > sys.maxsize:
        raise ValueError(f"empty: argument shape is {shape}; pass one of less than 2**63 bytes")
    array: np.ndarray[Any, Any] = _core.allocate(size * element.itemsize).view(element).reshape(sizes)
    return array
