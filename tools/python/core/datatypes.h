// Element types: formats of the buffer protocol, types of DLPack and NumPy's dtypes as ncclDataType_t, and back. Every
// function needs the GIL.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>

#include "axccl/axccl.h"

namespace axccl::python {

namespace nb = nanobind;

// The type of a buffer's elements, whose format is one of struct's, in the byte order of this machine.
std::optional<ncclDataType_t> FromFormat(const char* format, Py_ssize_t itemsize);
// The type of a NumPy array whose elements the buffer protocol cannot describe: those of ml_dtypes.
std::optional<ncclDataType_t> FromDtype(nb::handle dtype);
std::optional<ncclDataType_t> FromDlpack(nb::dlpack::dtype dtype);

// Whether elements of this format are in the other byte order.
bool SwappedBytes(const char* format);

// A new NumPy array. `call` names the caller in errors.
nb::object NewArray(const char* call, ncclDataType_t type, int num_dims, const int64_t* sizes);

}  // namespace axccl::python
