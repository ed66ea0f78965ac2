// The elements of `dense<...>`: all of them as lists in lists, one that all are equal to, or their bytes in
// hexadecimal.
#pragma once

#include "src/program/program.h"
#include "src/program/stablehlo/scanner.h"

namespace axccl::program::stablehlo {

// Reads what is before '>'. Elements that are all equal become one, as in MLIR.
bool ReadLiteral(Scanner* in, const TensorType& type, Literal* literal);

}  // namespace axccl::program::stablehlo
