// The columns of a program's values, one value for each lane of a warp: constants and special registers have one for
// each value, however often it is used.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "tools/softgpu/engine/machine.h"

namespace softgpu::engine {

class Columns {
 public:
  explicit Columns(Program* program) : program_(program) {}

  // A fresh one, or several side by side.
  ColumnId New(uint32_t columns = 1);
  ColumnId Constant(uint64_t value);
  ColumnId SpecialValue(Special special, int64_t addend);

 private:
  Program* const program_;
  std::map<uint64_t, ColumnId> constants_;
  std::map<std::pair<Special, int64_t>, ColumnId> specials_;
};

}  // namespace softgpu::engine
