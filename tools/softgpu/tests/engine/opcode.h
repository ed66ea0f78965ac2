// Runs one instruction on many operands and compares each result with an oracle.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace softgpu::engine::test {

using Oracle = std::function<uint64_t(uint64_t a, uint64_t b, uint64_t c)>;

struct OpcodeCase {
  std::string text;  // with %d, %a, %b, %c (%p, %q are predicates; %d is set before by "mov %d, 0")
  int in_bits;       // of the registers of a, b and c
  int out_bits;
  Oracle oracle;
  // Where it is not null, operands instead of random ones (each of a, b and c).
  const std::vector<uint64_t>* values = nullptr;
  // Whether two results are as good as each other; equality when it is missing.
  std::function<bool(uint64_t got, uint64_t wanted)> close = {};
};

void CheckOpcode(const OpcodeCase& c);
void CheckOpcodes(const std::vector<OpcodeCase>& cases);

// 0, 1, -1, sign bits, the limits of shifts and fields, and so on.
const std::vector<uint64_t>& EdgeIntegers();

}  // namespace softgpu::engine::test
