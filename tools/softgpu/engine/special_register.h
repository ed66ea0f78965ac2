// The names of special registers.
#pragma once

#include <optional>
#include <string_view>

#include "tools/softgpu/engine/machine.h"

namespace softgpu::engine {

// Finds registers that are constant for a thread; clocks and the like are not here.
std::optional<Special> SpecialNamed(std::string_view name);

}  // namespace softgpu::engine
