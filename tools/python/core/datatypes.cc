#include "tools/python/core/datatypes.h"

#include <cstring>
#include <iterator>

#include "tools/python/core/errors.h"

namespace axccl::python {
namespace {

struct Named {
  const char* name;  // NumPy's
  ncclDataType_t type;
  bool extended;  // a dtype of ml_dtypes
};

const Named kTypes[] = {
    {"int8", ncclInt8, false},
    {"uint8", ncclUint8, false},
    {"int16", axcclInt16, false},
    {"uint16", axcclUint16, false},
    {"int32", ncclInt32, false},
    {"uint32", ncclUint32, false},
    {"int64", ncclInt64, false},
    {"uint64", ncclUint64, false},
    {"float16", ncclFloat16, false},
    {"float32", ncclFloat32, false},
    {"float64", ncclFloat64, false},
    {"bool", axcclBool, false},
    {"complex64", axcclComplex64, false},
    {"complex128", axcclComplex128, false},
    {"bfloat16", ncclBfloat16, true},
    {"float8_e4m3fn", ncclFloat8e4m3, true},
    {"float8_e5m2", ncclFloat8e5m2, true},
};

std::optional<ncclDataType_t> Integer(bool has_sign, Py_ssize_t bytes) {
  switch (bytes) {
    case 1:
      return has_sign ? ncclInt8 : ncclUint8;
    case 2:
      return has_sign ? axcclInt16 : axcclUint16;
    case 4:
      return has_sign ? ncclInt32 : ncclUint32;
    case 8:
      return has_sign ? ncclInt64 : ncclUint64;
    default:
      return std::nullopt;
  }
}

// numpy.dtype of each of kTypes, made at first use and kept for the life of the process.
PyObject* DtypeOf(const char* call, ncclDataType_t type) {
  static PyObject* dtypes[std::size(kTypes)] = {};
  for (size_t i = 0; i < std::size(kTypes); ++i) {
    if (kTypes[i].type != type) continue;
    if (dtypes[i] != nullptr) return dtypes[i];
    nb::object name = nb::cast(kTypes[i].name);
    if (kTypes[i].extended) {
      try {
        name = nb::module_::import_("ml_dtypes").attr(kTypes[i].name);
      } catch (nb::python_error&) {
        RaiseType(
            "%s: the result would be a NumPy array of %s, which needs the package ml_dtypes; install it or pass out",
            call, kTypes[i].name);
      }
    }
    return dtypes[i] = nb::module_::import_("numpy").attr("dtype")(name).release().ptr();
  }
  RaiseType("%s: no NumPy dtype for elements of datatype %d; pass out", call, static_cast<int>(type));
}

}  // namespace

bool SwappedBytes(const char* format) { return format != nullptr && (format[0] == '>' || format[0] == '!'); }

std::optional<ncclDataType_t> FromFormat(const char* format, Py_ssize_t itemsize) {
  if (format == nullptr) return ncclUint8;
  if (SwappedBytes(format)) return std::nullopt;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  const bool complex = *format == 'Z';
  if (complex) ++format;
  if (*format == '\0' || format[1] != '\0') return std::nullopt;
  if (complex) {
    if (*format == 'f') return axcclComplex64;
    return *format == 'd' ? std::optional(axcclComplex128) : std::nullopt;
  }
  if (std::strchr("bhilqn", *format) != nullptr) return Integer(true, itemsize);
  if (std::strchr("BHILQN", *format) != nullptr) return Integer(false, itemsize);
  switch (*format) {
    case '?':
      return axcclBool;
    case 'e':
      return ncclFloat16;
    case 'f':
      return ncclFloat32;
    case 'd':
      return ncclFloat64;
    default:
      return std::nullopt;
  }
}

std::optional<ncclDataType_t> FromDtype(nb::handle dtype) {
  const nb::object name = nb::getattr(dtype, "name", nb::none());
  if (!nb::isinstance<nb::str>(name)) return std::nullopt;
  const char* const text = nb::cast<const char*>(name);
  for (const Named& row : kTypes) {
    if (row.extended && std::strcmp(row.name, text) == 0) return row.type;
  }
  return std::nullopt;
}

std::optional<ncclDataType_t> FromDlpack(nb::dlpack::dtype dtype) {
  using Code = nb::dlpack::dtype_code;
  if (dtype.lanes != 1) return std::nullopt;
  const auto is = [&](Code code, int bits) { return dtype.code == static_cast<uint8_t>(code) && dtype.bits == bits; };
  if (dtype.code == static_cast<uint8_t>(Code::Int)) return Integer(true, dtype.bits / 8);
  if (dtype.code == static_cast<uint8_t>(Code::UInt)) return Integer(false, dtype.bits / 8);
  if (is(Code::Float, 16)) return ncclFloat16;
  if (is(Code::Float, 32)) return ncclFloat32;
  if (is(Code::Float, 64)) return ncclFloat64;
  if (is(Code::Bfloat, 16)) return ncclBfloat16;
  if (is(Code::Complex, 64)) return axcclComplex64;
  if (is(Code::Complex, 128)) return axcclComplex128;
  if (is(Code::Bool, 8)) return axcclBool;
  if (is(Code::Float8_E4M3FN, 8)) return ncclFloat8e4m3;
  if (is(Code::Float8_E5M2, 8)) return ncclFloat8e5m2;
  return std::nullopt;
}

nb::object NewArray(const char* call, ncclDataType_t type, int num_dims, const int64_t* sizes) {
  // Kept for the life of the process: looking it up would cost as much as the call.
  static PyObject* const empty = nb::object(nb::module_::import_("numpy").attr("empty")).release().ptr();
  PyObject* const dtype = DtypeOf(call, type);
  const nb::object shape = nb::steal(PyTuple_New(num_dims));
  if (!shape.is_valid()) throw nb::python_error();
  for (int d = 0; d < num_dims; ++d) PyTuple_SetItem(shape.ptr(), d, PyLong_FromLongLong(sizes[d]));
  PyObject* const arguments[] = {shape.ptr(), dtype};
  PyObject* const array = PyObject_Vectorcall(empty, arguments, 2, nullptr);
  if (array == nullptr) throw nb::python_error();
  return nb::steal(array);
}

}  // namespace axccl::python
