// Integer forms of opcodes that floats have, too.
#pragma once

#include "tools/softgpu/engine/decoder.h"

namespace softgpu::engine {

enum class IntegerOp : uint8_t { kAdd, kSub, kMulLow, kMulHigh, kDiv, kRem, kMin, kMax, kAbs, kNeg, kMadLow, kMadHigh };

// The rest of an integer instruction whose type has been taken.
bool DecodeInteger(Decoder& decoder, IntegerOp op, Type type);

}  // namespace softgpu::engine
