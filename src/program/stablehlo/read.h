// The attributes of an operation as those of a program, except who communicates (groups.h).
//
// Functions return false once they have reported a failure to `errors`.
#pragma once

#include "src/program/stablehlo/scanner.h"
#include "src/program/stablehlo/tree.h"

namespace axccl::program::stablehlo {

// Checks what no attribute of a program says: the fields of attributes that have some, and the type of comparisons.
bool CheckFields(const Op& op, OpKind kind, Scanner* errors);

// Reads the value of `attribute` by its name and the kind of `operation`, whose results are known. `words`: its size.
bool ReadAttribute(const Op& op, const Operation& operation, Scanner* errors, Attribute* attribute, size_t* words);

// The single operation of the region of a reduction.
bool ReadFold(const Op& op, const Func& func, Scanner* errors, Combine* fold);

}  // namespace axccl::program::stablehlo
