// The names of special registers.
#pragma once

#include <optional>
#include <string_view>

#include "tools/softgpu/engine/machine.h"

namespace softgpu::engine {

// Those that stay the same while a thread lives; clocks and the like are not here.
std::optional<Special> SpecialNamed(std::string_view name);

}  // namespace softgpu::engine
