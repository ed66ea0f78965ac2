// The columns of a program's values, one value for each lane of a warp. Constants have one for each value in the
// program, special registers one in each procedure, however often they are used.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "tools/softgpu/engine/machine.h"

namespace softgpu::engine {

class Columns {
 public:
  explicit Columns(Program* program) : program_(program) {}

  // From now on, columns are those of `procedure`.
  void Begin(Procedure* procedure);
  // A fresh one, or several side by side.
  ColumnId New(uint32_t columns = 1);
  ColumnId Constant(uint64_t value);
  ColumnId SpecialValue(Special special, int64_t addend);
  // Whether there was no room for one of the procedure's.
  bool overflowed() const { return overflowed_; }

 private:
  Program* const program_;
  Procedure* procedure_ = nullptr;
  ColumnId next_ = 0;
  uint64_t used_constants_ = 1;  // ids are below zero, so the first one is never used
  bool overflowed_ = false;
  std::map<uint64_t, ColumnId> constants_;
  std::map<std::pair<Special, int64_t>, ColumnId> specials_;
};

}  // namespace softgpu::engine
