// Numbers as PTX writes them.
#pragma once

#include <string_view>

#include "tools/softgpu/engine/ptx_ir.h"

namespace softgpu::engine {

// Understands integers (decimal, 0x, 0b, octal, U suffix), 0f and 0d literals and decimal floats.
bool ParseLiteral(std::string_view word, bool negative, OperandIr* operand);

}  // namespace softgpu::engine
