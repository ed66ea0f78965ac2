// Attributes of MLIR's text: those that the supported operations have, and the generic ones.
#pragma once

#include <vector>

#include "src/program/stablehlo/scanner.h"
#include "src/program/stablehlo/tree.h"

namespace axccl::program::stablehlo {

// Reads one attribute. `depth`: how many are around it; kMaxNesting at most.
bool ReadAttr(Scanner* in, int depth, AttrNode* attr);
// Reads `key = value, key` up to the closing `end`. No key is twice in `attributes`, which may have some already.
bool ReadEntries(Scanner* in, int depth, std::string_view end, std::vector<NamedAttr>* attributes);
// `<["x"=2, "y"=4], device_ids=[...]>`: kMesh.
bool ReadMesh(Scanner* in, AttrNode* attr);
// `[0, 1]`.
bool ReadInts(Scanner* in, AttrNode* attr);

}  // namespace axccl::program::stablehlo
