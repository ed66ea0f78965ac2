// The text of one element of a constant: `true` or `false`, a decimal integer, or the shortest decimal number that
// reads back as the same float. Floats that are not finite are their bits, such as 0x7fc00000, so that no payload is
// lost. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/types.h"

namespace axccl::program {

// `bytes` are the ElementSize(type) bytes of an element, in the machine's order; `type` is one that kinds.h names.
std::string ElementText(DataType type, const uint8_t* bytes);
// Accepts exactly what ElementText returns. On failure, `bytes` are undefined.
bool ParseElement(DataType type, std::string_view text, uint8_t* bytes);

}  // namespace axccl::program
