#include "tools/softgpu/engine/columns.h"

#include <algorithm>

namespace softgpu::engine {

void Columns::Begin(Procedure* procedure) {
  procedure_ = procedure;
  next_ = procedure->first_value;
  specials_.clear();
  overflowed_ = false;
}

ColumnId Columns::New(uint32_t columns) {
  const auto values = static_cast<ColumnId>(columns * kWarpLanes);
  overflowed_ |= procedure_->last_value - next_ < values;
  return overflowed_ ? kSinkColumn : std::exchange(next_, next_ + values);
}

ColumnId Columns::Constant(uint64_t value) {
  const auto [found, fresh] = constants_.try_emplace(value, 0);
  if (!fresh) return found->second;
  overflowed_ |= used_constants_ == program_->most_constants;
  if (overflowed_) return kSinkColumn;
  const uint64_t at = used_constants_++ * kWarpLanes;
  std::fill_n(program_->constants.get() + at, kWarpLanes, value);
  return found->second = -static_cast<ColumnId>(at);
}

ColumnId Columns::SpecialValue(Special special, int64_t addend) {
  const auto [found, fresh] = specials_.try_emplace({special, addend}, 0);
  if (fresh) {
    found->second = New();
    procedure_->specials.push_back({special, addend, found->second});
  }
  return found->second;
}

}  // namespace softgpu::engine
