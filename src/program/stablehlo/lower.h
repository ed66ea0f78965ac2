// From the tree of a module to a program: calls are inlined, attributes read, ids given, groups resolved.
#pragma once

#include <string_view>

#include "src/base/status.h"
#include "src/program/program.h"
#include "src/program/stablehlo/tree.h"

namespace axccl::program::stablehlo {

inline constexpr int kMaxCalls = 64;  // within each other

// `text` is what the tree was made of. Functions that nobody calls are checked, too.
Result<Program> Lower(const Module& module, std::string_view text);

}  // namespace axccl::program::stablehlo
