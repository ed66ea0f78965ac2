#include "tools/python/core/errors.h"

#include <cstdarg>
#include <cstdio>
#include <vector>

namespace axccl::python {
namespace {

std::string Format(const char* format, va_list arguments) {
  va_list again;
  va_copy(again, arguments);
  const int length = std::vsnprintf(nullptr, 0, format, arguments);
  std::vector<char> text(static_cast<size_t>(length) + 1);
  std::vsnprintf(text.data(), text.size(), format, again);
  va_end(again);
  return text.data();
}

}  // namespace

Outcome Take(ncclResult_t code) {
  if (code == ncclSuccess) return {};
  return {code, ncclGetLastError(nullptr)};
}

void Raise(ncclResult_t code, const std::string& text) {
  const nb::module_ errors = nb::module_::import_("axccl._errors");
  const nb::object type = errors.attr(code == ncclInvalidArgument ? "ArgumentError" : "Error");
  // An invalid byte, say of a host name, must not hide the error.
  const nb::object readable =
      nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
  const nb::object error = type(readable, static_cast<int>(code));
  PyErr_SetObject(type.ptr(), error.ptr());
  throw nb::python_error();
}

void RaiseArgument(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const std::string text = Format(format, arguments);
  va_end(arguments);
  Raise(ncclInvalidArgument, text);
}

void RaiseType(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const std::string text = Format(format, arguments);
  va_end(arguments);
  PyErr_SetString(PyExc_TypeError, text.c_str());
  throw nb::python_error();
}

void RaiseIfFailed(const Outcome& outcome) {
  if (outcome.code == ncclSuccess) return;
  Raise(outcome.code, outcome.text.empty() ? ncclGetErrorString(outcome.code) : outcome.text);
}

}  // namespace axccl::python
