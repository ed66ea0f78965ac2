#include "tools/softgpu/engine/columns.h"

namespace softgpu::engine {

ColumnId Columns::New(uint32_t columns) {
  const ColumnId column = static_cast<ColumnId>(program_->values);
  program_->values += columns * kWarpLanes;
  return column;
}

ColumnId Columns::Constant(uint64_t value) {
  const auto [found, fresh] = constants_.try_emplace(value, 0);
  if (fresh) {
    found->second = -static_cast<ColumnId>(program_->constants.size());
    program_->constants.insert(program_->constants.end(), kWarpLanes, value);
  }
  return found->second;
}

ColumnId Columns::SpecialValue(Special special, int64_t addend) {
  const auto [found, fresh] = specials_.try_emplace({special, addend}, 0);
  if (fresh) {
    found->second = New();
    program_->specials.push_back({special, addend, found->second});
  }
  return found->second;
}

}  // namespace softgpu::engine
