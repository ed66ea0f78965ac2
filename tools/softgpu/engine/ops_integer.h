// Integer forms of opcodes that floats have, too.
#pragma once

#include "tools/softgpu/engine/decoder.h"

namespace softgpu::engine {

enum class IntegerOp : uint8_t { kAdd, kSub, kMulLow, kMulHigh, kDiv, kRem, kMin, kMax, kAbs, kNeg, kMadLow, kMadHigh };

// Decodes the rest of an integer instruction whose type has been taken.
bool DecodeInteger(Decoder& decoder, IntegerOp op, Type type);
// Decodes add, min and max of pairs of 16-bit integers, whose type (.u16x2, .s16x2) has been taken.
bool DecodeIntegerPair(Decoder& decoder, IntegerOp op, bool is_signed);

}  // namespace softgpu::engine
