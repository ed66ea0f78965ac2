#include "tools/python/core/operands.h"

#include <optional>
#include <string>
#include <utility>

#include "tools/python/core/datatypes.h"
#include "tools/python/core/errors.h"

namespace axccl::python {
namespace {

std::string Describe(const Place& place) {
  std::string text = std::string(place.call) + ": argument " + place.argument;
  if (place.index >= 0) text += "[" + std::to_string(place.index) + "]";
  return text;
}

std::string TypeName(nb::handle object) { return nb::cast<std::string>(nb::type_name(object.type())); }

[[noreturn]] void RaiseDatatype(const Place& place, const std::string& what) {
  RaiseType(
      "%s has elements of %s; there are int8 to int64, uint8 to uint64, float16 to float64, bool, complex64, "
      "complex128, "
      "and ml_dtypes' bfloat16, float8_e4m3fn and float8_e5m2. Convert it with astype, or view it as one of these to "
      "move its bytes",
      Describe(place).c_str(), what.c_str());
}

[[noreturn]] void RaiseReadOnly(const Place& place) {
  RaiseArgument("%s is read-only; pass an array that can be written, such as a copy", Describe(place).c_str());
}

[[noreturn]] void RaiseDims(const Place& place, size_t dims) {
  RaiseArgument("%s has %zu dimensions; the library takes %d at most, so join some with reshape",
                Describe(place).c_str(), dims, AXCCL_MAX_DIMS);
}

// Whether it is a numpy.ma.MaskedArray, which has the protocol for all of its elements.
bool Masked(nb::handle object) {
  static PyObject* const plain = nb::object(nb::module_::import_("numpy").attr("ndarray")).release().ptr();
  return object.type().ptr() != plain && nb::hasattr(object.type(), "filled");
}

// The object's capsule. Its error goes to the caller: it knows why its memory does not hold its values, as where a
// tensor of PyTorch requires gradients or is a conjugate that was not computed.
nb::object Export(nb::handle object) {
  const nb::object method = object.attr("__dlpack__");
  try {
    return method(nb::arg("max_version") = nb::make_tuple(1, 0));
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return method();  // of an object from before version 1.0, which has no such argument
}

}  // namespace

Operand::~Operand() {
  if (held_) PyBuffer_Release(&buffer_);
}

bool Operand::Hold(nb::handle object, int flags) {
  held_ = PyObject_GetBuffer(object.ptr(), &buffer_, flags) == 0;
  if (!held_) PyErr_Clear();
  return held_;
}

void Operand::Read(const Place& place, nb::handle object, bool writable) {
  if (PyObject_CheckBuffer(object.ptr())) return ReadBuffer(place, object, writable);
  if (nb::hasattr(object, "__dlpack__")) return ReadDlpack(place, object, writable);
  RaiseType(
      "%s is of type %s; pass a NumPy array or another object with the buffer protocol or __dlpack__, for numbers and "
      "lists of numbers numpy.asarray(...)",
      Describe(place).c_str(), TypeName(object).c_str());
}

void Operand::ReadBuffer(const Place& place, nb::handle object, bool writable) {
  if (Masked(object)) {
    RaiseType("%s is a masked array, whose mask the library would ignore; pass x.filled(...) or x.data",
              Describe(place).c_str());
  }
  const int access = writable ? PyBUF_WRITABLE : 0;
  std::optional<ncclDataType_t> type;
  if (Hold(object, PyBUF_STRIDES | PyBUF_FORMAT | access)) {
    type = FromFormat(buffer_.format, buffer_.itemsize);
    if (!type && SwappedBytes(buffer_.format)) {
      RaiseType(
          "%s has elements in the other byte order (format \"%s\"); convert it: x.astype(x.dtype.newbyteorder('='))",
          Describe(place).c_str(), buffer_.format);
    }
    if (!type) RaiseDatatype(place, "format \"" + std::string(buffer_.format) + "\"");
  } else if (writable && Hold(object, PyBUF_STRIDES)) {
    const bool read_only = buffer_.readonly;
    PyBuffer_Release(&buffer_);
    held_ = false;
    if (read_only) RaiseReadOnly(place);
  }
  if (!held_) {  // the protocol has no format for the elements
    const nb::object dtype = nb::getattr(object, "dtype", nb::none());
    type = FromDtype(dtype);
    if (!type) RaiseDatatype(place, dtype.is_none() ? TypeName(object) : nb::cast<std::string>(nb::str(dtype)));
    if (!Hold(object, PyBUF_STRIDES | access)) return ReadDlpack(place, object, writable);  // JAX's bfloat16
  }
  SetView(place, *type);
}

void Operand::SetView(const Place& place, ncclDataType_t type) {
  if (buffer_.ndim > AXCCL_MAX_DIMS) RaiseDims(place, static_cast<size_t>(buffer_.ndim));
  if (buffer_.ndim > 0 && buffer_.shape == nullptr)
    RaiseType("%s has a buffer without a shape; pass numpy.asarray(...) of it", Describe(place).c_str());
  Py_ssize_t contiguous = buffer_.itemsize;
  for (int d = buffer_.ndim - 1; d >= 0; --d) {
    // A buffer without strides, such as that of a ctypes array, is contiguous.
    const Py_ssize_t stride = buffer_.strides != nullptr ? buffer_.strides[d] : contiguous;
    if (buffer_.strides == nullptr) contiguous *= buffer_.shape[d];
    sizes_[d] = buffer_.shape[d];
    strides_[d] = stride / buffer_.itemsize;
    if (strides_[d] * buffer_.itemsize != stride) {
      RaiseArgument(
          "%s has a stride of %zd bytes along axis %d, which is no multiple of its elements' %zd bytes; pass a "
          "copy, such as numpy.ascontiguousarray(...)",
          Describe(place).c_str(), stride, d, buffer_.itemsize);
    }
  }
  read_only_ = buffer_.readonly;
  view_ = {sizeof(axcclView_t), buffer_.buf, type, buffer_.ndim, sizes_, strides_};
}

void Operand::ReadDlpack(const Place& place, nb::handle object, bool writable) {
  // JAX's arrays never change, but it does not mark them.
  const bool immutable = nb::cast<std::string>(nb::str(object.type().attr("__module__"))).starts_with("jax");
  if (nb::hasattr(object, "is_neg") && nb::cast<bool>(object.attr("is_neg")())) {  // PyTorch exports it all the same
    RaiseType("%s has the negative bit: its memory holds the values with the other sign; pass x.resolve_neg()",
              Describe(place).c_str());
  }
  const nb::object capsule = Export(object);
  nb::ndarray<> array;
  read_only_ = immutable || !nb::try_cast(capsule, array);
  if (!read_only_) {
    imported_ = nb::ndarray<nb::ro>(array);
  } else if (!nb::try_cast(capsule, imported_)) {
    RaiseType("%s is of type %s, whose __dlpack__ gives no memory that can be read; pass numpy.asarray(...) of it",
              Describe(place).c_str(), TypeName(object).c_str());
  }
  if (imported_.device_type() != nb::device::cpu::value) {
    RaiseType(
        "%s is on a device (DLPack device type %d); this package's ranks are on the host: pass a copy in its memory, "
        "for PyTorch x.cpu()",
        Describe(place).c_str(), imported_.device_type());
  }
  if (writable && read_only_) RaiseReadOnly(place);
  const std::optional<ncclDataType_t> type = FromDlpack(imported_.dtype());
  if (!type) RaiseDatatype(place, nb::cast<std::string>(nb::str(nb::getattr(object, "dtype", nb::str("?")))));
  const size_t dims = imported_.ndim();
  if (dims > AXCCL_MAX_DIMS) RaiseDims(place, dims);
  for (size_t d = 0; d < dims; ++d) {
    sizes_[d] = static_cast<int64_t>(imported_.shape(d));
    strides_[d] = imported_.stride(d);
  }
  view_ = {sizeof view_, const_cast<void*>(imported_.data()), *type, static_cast<int>(dims), sizes_, strides_};
}

nb::object Operand::Make(const char* call, ncclDataType_t type, int num_dims, const int64_t* sizes) {
  nb::object array = NewArray(call, type, num_dims, sizes);
  if (!Hold(array, PyBUF_STRIDES | PyBUF_WRITABLE)) RaiseArgument("%s: the new array gives no memory; pass out", call);
  SetView(Place{call, "out"}, type);
  return array;
}

void Operands::Read(const Place& place, nb::handle objects, bool writable) {
  result_ = nb::borrow(objects);
  listed_ = PyList_Check(objects.ptr()) || PyTuple_Check(objects.ptr());
  if (!listed_) {
    one_.Read(place, objects, writable);
    count_ = 1;
    return;
  }
  const Py_ssize_t count = PySequence_Size(objects.ptr());
  if (count < 0) throw nb::python_error();
  if (count == 0) RaiseArgument("%s is an empty list; pass at least one array", Describe(place).c_str());
  count_ = static_cast<int>(count);
  many_ = std::make_unique<Operand[]>(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    // Reading an operand may run Python code, which may change the list.
    const nb::object item = nb::steal(PySequence_GetItem(objects.ptr(), i));
    if (!item.is_valid()) throw nb::python_error();
    many_[static_cast<size_t>(i)].Read({place.call, place.argument, i}, item, writable);
    views_.push_back(many_[static_cast<size_t>(i)].view());
  }
}

void Operands::Reserve(int count, bool listed) {
  count_ = count;
  listed_ = listed;
  if (!listed) return;
  many_ = std::make_unique<Operand[]>(static_cast<size_t>(count));
  views_.resize(static_cast<size_t>(count));
  result_ = nb::list();
}

void Operands::Make(const char* call, int index, ncclDataType_t type, int num_dims, const int64_t* sizes) {
  if (!listed_) {
    result_ = one_.Make(call, type, num_dims, sizes);
    return;
  }
  Operand& operand = many_[static_cast<size_t>(index)];
  PyList_Append(result_.ptr(), operand.Make(call, type, num_dims, sizes).ptr());
  views_[static_cast<size_t>(index)] = operand.view();
}

bool Operands::read_only() const {
  if (!listed_) return one_.read_only();
  for (int i = 0; i < count_; ++i) {
    if (many_[static_cast<size_t>(i)].read_only()) return true;
  }
  return false;
}

}  // namespace axccl::python
