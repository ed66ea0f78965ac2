// Operands of a call: Python objects as views of the library. Any object with the buffer protocol (NumPy arrays) or
// __dlpack__ (PyTorch, JAX) is one; a list or tuple is a list of operands. An operand holds the object's memory until
// it is destroyed. Making and destroying needs the GIL.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "axccl/axccl.h"

namespace axccl::python {

namespace nb = nanobind;

// Where an argument stands, for errors: "all_reduce: argument out[2] ...".
struct Place {
  const char* call;
  const char* argument;
  int64_t index = -1;
};

// The memory of one object. It must not move, because the view points into it.
class Operand {
 public:
  Operand() = default;
  ~Operand();
  Operand(const Operand&) = delete;
  Operand& operator=(const Operand&) = delete;

  // Raises TypeError or axccl.ArgumentError for what is no operand, and for memory that cannot be written if
  // `writable`.
  void Read(const Place& place, nb::handle object, bool writable);
  // A new NumPy array of that shape.
  nb::object Make(const char* call, ncclDataType_t type, int num_dims, const int64_t* sizes);

  const axcclView_t& view() const { return view_; }
  bool read_only() const { return read_only_; }

 private:
  bool Hold(nb::handle object, int flags);
  void ReadBuffer(const Place& place, nb::handle object, bool writable);
  void ReadDlpack(const Place& place, nb::handle object, bool writable);
  void SetView(const Place& place, ncclDataType_t type);

  axcclView_t view_;
  int64_t sizes_[AXCCL_MAX_DIMS];
  int64_t strides_[AXCCL_MAX_DIMS];
  Py_buffer buffer_;
  bool held_ = false;
  bool read_only_ = false;
  nb::ndarray<nb::ro> imported_;  // keeps memory of __dlpack__
};

// All operands of one side of a call. One is kept in place, because that is what small calls have.
class Operands {
 public:
  void Read(const Place& place, nb::handle objects, bool writable);
  // Makes room for `count` operands that Make fills, and a list if `listed`.
  void Reserve(int count, bool listed);
  void Make(const char* call, int index, ncclDataType_t type, int num_dims, const int64_t* sizes);

  int count() const { return count_; }
  bool listed() const { return listed_; }
  bool given() const { return count_ > 0 || listed_; }
  bool read_only() const;
  const axcclView_t& operator[](int index) const { return views()[index]; }
  // For the library; null without operands.
  const axcclView_t* views() const {
    if (!given()) return nullptr;
    return listed_ ? views_.data() : &one_.view();
  }
  // What a call returns: the object that was read, or the new arrays.
  nb::object result() const { return result_; }

 private:
  int count_ = 0;
  bool listed_ = false;
  Operand one_;
  std::unique_ptr<Operand[]> many_;
  std::vector<axcclView_t> views_;
  nb::object result_;
};

}  // namespace axccl::python
