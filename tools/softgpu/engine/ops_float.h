// Floating-point forms of opcodes that several families share.
#pragma once

#include "tools/softgpu/engine/decoder.h"
#include "tools/softgpu/engine/float_apply.h"

namespace softgpu::engine {

// Decodes the rest of an instruction of f32 or f64 whose type has been taken; `sources` operands follow the target.
bool DecodeFloat(Decoder& decoder, FloatOp op, Type type, size_t sources);
// The same for f16, f16x2, bf16 or bf16x2.
bool DecodeHalf(Decoder& decoder, FloatOp op, Type type, size_t sources);
// Takes .rn .rz .rm .rp; `otherwise` if there is none.
Rounding TakeRounding(Decoder& decoder, Rounding otherwise);

}  // namespace softgpu::engine
