"""Arrays for tests: any strides, sentinels around them, and the types and operators that the library has."""

import numpy as np

try:
    import ml_dtypes
    SMALL = [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
except ImportError:
    SMALL = []

INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
FLOATS = [np.float16, np.float32, np.float64] + SMALL
COMPLEX = [np.complex64, np.complex128]
TYPES = [np.dtype(t) for t in INTEGERS + FLOATS + COMPLEX + [np.bool_]]
SENTINEL = 0xA5

_FOLDS = {
    "sum": lambda a: a.sum(0), "prod": lambda a: a.prod(0), "max": lambda a: a.max(0), "min": lambda a: a.min(0),
    "and": np.bitwise_and.reduce, "or": np.bitwise_or.reduce, "xor": np.bitwise_xor.reduce,
    "logical_and": np.logical_and.reduce, "logical_or": np.logical_or.reduce,
}


def operators(dtype):
    """The operators of a type whose results are exact for `values`."""
    if dtype.kind == "c":
        return ["sum", "prod"]
    names = ["sum", "prod", "max", "min"]
    return names + ["and", "or", "xor", "logical_and", "logical_or"] if dtype.kind in "iub" else names


def fold(op, inputs):
    """NumPy's reduction of the inputs of all ranks. Small integers are exact in any type, whatever the order."""
    dtype = inputs[0].dtype
    if len(inputs) == 1:  # unchanged, by the definition of the logical operators
        return inputs[0]
    wide = np.stack(inputs)
    if dtype.kind not in "iubc":
        wide = wide.astype(np.float64)
    return np.asarray(_FOLDS[op](wide)).astype(dtype)


def values(rng, shape, dtype):
    """Values whose sums and products over 4 ranks are exact: 0, 1 and 2 for types without a sign, else from -2 on."""
    low = 0 if dtype.kind in "ub" else -2
    numbers = rng.integers(low, 3, size=shape)
    if dtype.kind == "c":
        return (numbers + 1j * rng.integers(-2, 3, size=shape)).astype(dtype)
    return numbers.astype(dtype)


class Strided:
    """An array of random strides (of any sign, with gaps and permuted axes) in memory full of sentinels."""

    def __init__(self, rng, shape, dtype, allocate=None):
        self.order = rng.permutation(len(shape))
        self.steps = rng.choice([1, 1, 2, -1, -2, 3], size=len(shape))
        self.shape = tuple(shape)
        self.margin = int(rng.integers(0, 4))
        spans = [size * abs(step) for size, step in zip(self.shape, self.steps)]
        self.spans = [spans[axis] for axis in self.order]
        count = int(np.prod(self.spans)) + 2 * self.margin
        self.base = (allocate or np.empty)(count, dtype)
        self.base.view(np.uint8)[...] = SENTINEL
        self.array = self._view(self.base)

    def _view(self, base):
        inner = base[self.margin:len(base) - self.margin].reshape(self.spans)
        inner = inner.transpose(np.argsort(self.order))
        view = inner[(..., *(slice(None, None, step) for step in self.steps))]  # "...": a view even without axes
        assert view.shape == self.shape and (view.size == 0 or np.shares_memory(view, base)), (view.shape, self.shape)
        return view

    def check(self, content, what):
        """That the array has this content, and that nothing else of its memory changed."""
        expected = np.empty_like(self.base)
        expected.view(np.uint8)[...] = SENTINEL
        self._view(expected)[...] = content
        if not np.array_equal(self.base.view(np.uint8), expected.view(np.uint8)):
            raise AssertionError(f"{what}: found\n{self.array!r}\nin place of\n{content!r}\nmemory\n{self.base!r}")


def check_equal(found, content, what):
    if found.dtype != content.dtype or found.shape != content.shape or \
            np.ascontiguousarray(found).tobytes() != np.ascontiguousarray(content).tobytes():
        raise AssertionError(f"{what}: found\n{found!r}\nin place of\n{content!r}")
