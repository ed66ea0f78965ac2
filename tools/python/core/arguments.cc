#include "tools/python/core/arguments.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "tools/python/core/errors.h"

namespace axccl::python {
namespace {

struct NamedOp {
  const char* name;
  ncclRedOp_t op;
};

const NamedOp kOps[] = {
    {"sum", ncclSum},
    {"prod", ncclProd},
    {"max", ncclMax},
    {"min", ncclMin},
    {"avg", ncclAvg},
    {"and", axcclAnd},
    {"or", axcclOr},
    {"xor", axcclXor},
    {"logical_and", axcclLogicalAnd},
    {"logical_or", axcclLogicalOr},
};

void Make(const char* call, const Operands& in, const Reshape* reshape, Operands* out) {
  out->Reserve(in.count(), in.listed());
  for (int i = 0; i < in.count(); ++i) {
    const axcclView_t& view = in[i];
    int64_t sizes[AXCCL_MAX_DIMS];
    std::copy_n(view.sizes, view.num_dims, sizes);
    if (reshape != nullptr) (*reshape)(i, view, sizes);
    out->Make(call, i, view.datatype, view.num_dims, sizes);
  }
}

}  // namespace

ncclRedOp_t ReadOp(const char* call, nb::handle op) {
  if (!PyUnicode_Check(op.ptr())) {
    RaiseType("%s: argument op is %s; pass a name, such as \"sum\"", call, nb::cast<std::string>(nb::repr(op)).c_str());
  }
  Py_ssize_t length = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(op.ptr(), &length);
  if (text == nullptr) throw nb::python_error();
  for (const NamedOp& row : kOps) {
    if (std::strcmp(row.name, text) == 0) return row.op;
  }
  RaiseArgument("%s: argument op is \"%s\"; there are sum, prod, max, min, avg, and, or, xor, logical_and, logical_or",
                call, text);
}

int ReadAxis(const char* call, const char* argument, const axcclView_t& view, int axis) {
  const int dims = view.num_dims;
  if (axis >= -dims && axis < dims) return axis < 0 ? axis + dims : axis;
  if (dims == 0)
    RaiseArgument("%s: argument %s is %d, but the array has no axes; pass x.reshape(1)", call, argument, axis);
  RaiseArgument("%s: argument %s is %d; an array of %d dimensions has axes %d..%d", call, argument, axis, dims, -dims,
                dims - 1);
}

std::vector<int64_t> ReadNumbers(const char* call, const char* argument, nb::handle numbers) {
  std::vector<int64_t> values;
  try {
    for (const nb::handle number : nb::iter(numbers)) {
      const nb::object index = nb::steal(PyNumber_Index(number.ptr()));
      if (!index.is_valid()) throw nb::python_error();
      values.push_back(PyLong_AsLongLong(index.ptr()));
      if (values.back() == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    }
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError) && !error.matches(PyExc_OverflowError)) throw;
    RaiseType("%s: argument %s is %s; pass a sequence of integers", call, argument,
              nb::cast<std::string>(nb::repr(numbers)).c_str());
  }
  return values;
}

std::vector<int64_t> ReadExtents(const char* call, const char* argument, nb::handle extents, int ranks, int count) {
  const auto check = [&](size_t numbers) {
    if (numbers == static_cast<size_t>(ranks)) return;
    RaiseArgument("%s: argument %s has %zu numbers; pass one for each of the %d ranks", call, argument, numbers, ranks);
  };
  std::vector<int64_t> values;
  bool nested = false;
  if (PySequence_Check(extents.ptr()) && PySequence_Size(extents.ptr()) > 0) {
    const nb::object first = nb::steal(PySequence_GetItem(extents.ptr(), 0));
    if (!first.is_valid()) throw nb::python_error();
    nested = PySequence_Check(first.ptr()) && !PyIndex_Check(first.ptr());
  }
  PyErr_Clear();
  if (!nested) {
    const std::vector<int64_t> row = ReadNumbers(call, argument, extents);
    check(row.size());
    for (int i = 0; i < count; ++i) values.insert(values.end(), row.begin(), row.end());
  } else {
    for (const nb::handle one : nb::iter(extents)) {
      const std::vector<int64_t> row = ReadNumbers(call, argument, one);
      check(row.size());
      values.insert(values.end(), row.begin(), row.end());
    }
    if (values.size() != static_cast<size_t>(ranks) * static_cast<size_t>(count)) {
      RaiseArgument("%s: argument %s has %zu sequences; pass one for each of the %d arrays", call, argument,
                    values.size() / static_cast<size_t>(ranks), count);
    }
  }
  for (const int64_t rows : values) {
    if (rows < 0)
      RaiseArgument("%s: argument %s has %lld; pass 0 rows or more", call, argument, static_cast<long long>(rows));
  }
  return values;
}

int64_t TimesRanks(const char* call, int64_t rows, int ranks) {
  int64_t all = 0;
  if (__builtin_mul_overflow(rows, int64_t{ranks}, &all)) {
    RaiseArgument("%s: argument x has %lld rows, whose number for all %d ranks has more than 63 bits; pass fewer", call,
                  static_cast<long long>(rows), ranks);
  }
  return all;
}

void CheckCounts(const char* call, const Operands& in, const Operands& out) {
  if (in.count() == out.count() && in.listed() == out.listed()) return;
  const auto describe = [](const Operands& operands) {
    return operands.listed() ? "a list of " + std::to_string(operands.count()) : std::string("one array");
  };
  RaiseArgument("%s: argument x is %s and argument out is %s; pass as many outputs as inputs", call,
                describe(in).c_str(), describe(out).c_str());
}

void ReadOrMakeOut(const char* call, const Operands& in, nb::handle out, const Reshape& reshape, Operands* operands) {
  if (out.is_none()) return Make(call, in, &reshape, operands);
  operands->Read({call, "out"}, out, true);
  CheckCounts(call, in, *operands);
}

void ReadOrMakeOut(const char* call, const Operands& in, nb::handle out, Operands* operands) {
  if (out.is_none()) return Make(call, in, nullptr, operands);
  operands->Read({call, "out"}, out, true);
  CheckCounts(call, in, *operands);
}

}  // namespace axccl::python
