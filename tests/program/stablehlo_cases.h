// Operations in StableHLO's two forms with what they are in a program, and texts that are refused.
#pragma once

#include <span>

namespace axccl::program {

// Lines within a function of arguments %x, %y: tensor<4x8xf32>, %s: tensor<f32>, %i: tensor<i32>, %p: tensor<i1> and
// %n: tensor<4x1xi32>, which are %0 to %5 of the program.
struct StablehloCase {
  const char *pretty, *generic, *program;
};
extern const std::span<const StablehloCase> kStablehloCases;

// `place`: the line and column of the message; `words` are in it.
struct StablehloError {
  const char *lines, *place, *words;
};
extern const std::span<const StablehloError> kStablehloErrors;  // lines within that function, which begin at line 4
extern const std::span<const StablehloError> kModuleErrors;     // modules

}  // namespace axccl::program
