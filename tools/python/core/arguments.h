// Arguments of calls other than arrays, and the results that calls make. Every function needs the GIL and raises a
// Python exception for what cannot be right.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "axccl/axccl.h"
#include "tools/python/core/operands.h"

namespace axccl::python {

namespace nb = nanobind;

// An operator by name: "sum", "prod", "max", "min", "avg", "and", "or", "xor", "logical_and", "logical_or".
ncclRedOp_t ReadOp(const char* call, nb::handle op);

// An axis of a view, counted from the first.
int ReadAxis(const char* call, const char* argument, const axcclView_t& view, int axis);

// Numbers of a sequence, an array included.
std::vector<int64_t> ReadNumbers(const char* call, const char* argument, nb::handle numbers);

// Rows of `ranks` ranks in each of `count` operands: as many numbers as there are ranks, which hold for all operands,
// or a sequence of such sequences.
std::vector<int64_t> ReadExtents(const char* call, const char* argument, nb::handle extents, int ranks, int count);

// The rows of a result that has those of `ranks` ranks.
int64_t TimesRanks(const char* call, int64_t rows, int ranks);

// Changes the sizes of operand `index`, which are those of the input, to those of its result.
using Reshape = std::function<void(int index, const axcclView_t& view, int64_t* sizes)>;

// Reads `out`, or makes it if it is None. `in` are the inputs, whose results it is.
void ReadOrMakeOut(const char* call, const Operands& in, nb::handle out, const Reshape& reshape, Operands* operands);
// The same where results have the shapes of the inputs.
void ReadOrMakeOut(const char* call, const Operands& in, nb::handle out, Operands* operands);

// Raises axccl.ArgumentError if there are not as many outputs as inputs.
void CheckCounts(const char* call, const Operands& in, const Operands& out);

}  // namespace axccl::python
