// Types of MLIR's text. Everything reads at the scanner, and returns false once it has failed.
#pragma once

#include <string_view>
#include <vector>

#include "src/program/program.h"
#include "src/program/stablehlo/scanner.h"

namespace axccl::program::stablehlo {

// `tensor<2x3xf32>`: the type of a value. Dynamic shapes, quantized, complex and other types are refused by name.
bool ReadType(Scanner* in, TensorType* type);
// The type of a dense attribute, whose elements may also be `index`, which are read as kInt64. `element` is the word.
bool ReadDenseType(Scanner* in, TensorType* type, std::string_view* element);
// `tensor<f32>, tensor<i1>`: at least one.
bool ReadTypeList(Scanner* in, std::vector<TensorType>* types);
// `tensor<f32>`, `(tensor<f32>, tensor<i1>)` or `()`.
bool ReadResultTypes(Scanner* in, std::vector<TensorType>* types);
// `(tensor<f32>) -> tensor<f32>`.
bool ReadFunctionType(Scanner* in, std::vector<TensorType>* inputs, std::vector<TensorType>* outputs);

}  // namespace axccl::program::stablehlo
