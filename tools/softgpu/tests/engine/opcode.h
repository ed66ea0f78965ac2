// Runs one instruction on many operands and compares each result with an oracle.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace softgpu::engine::test {

using Oracle = std::function<uint64_t(uint64_t a, uint64_t b, uint64_t c)>;

struct OpcodeCase {
  std::string text;  // with %d, %a, %b, %c (%p, %q are predicates; a "mov %d, 0" precedes)
  int in_bits;       // of the registers of a, b and c
  int out_bits;
  Oracle oracle;
  // If it is not null, operands instead of random ones (for each of a, b and c).
  const std::vector<uint64_t>* values = nullptr;
  // Whether two results are equally good; equality if it is missing.
  std::function<bool(uint64_t got, uint64_t wanted)> close = {};
};

void CheckOpcode(const OpcodeCase& c);
void CheckOpcodes(const std::vector<OpcodeCase>& cases);

// 0, 1, -1, sign bits, the limits of shifts and fields, and so on.
const std::vector<uint64_t>& EdgeIntegers();

}  // namespace softgpu::engine::test
