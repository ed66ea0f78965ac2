// The mixer of all hashes of words: of tables in this process, and of what ranks compare with each other.
//
// Ranks that meet run the same of it (boot::kProtocolVersion); no file holds its results. Not for what an attacker may
// choose, and not for text, which plan::HashOf hashes. Constant expressions.
#pragma once

#include <cstdint>

namespace axccl {

inline constexpr uint64_t kHashSeed = 0x9e3779b97f4a7c15ull;

// A hash with one more word. Begin with kHashSeed or another hash: Mix(a, b) is Mix(b, a). Of two that differ in one
// argument the results differ.
constexpr uint64_t Mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0xff51afd7ed558ccdull;
  hash = (hash ^ hash >> 32) * 0xc4ceb9fe1a85ec53ull;
  return hash ^ hash >> 29;
}

}  // namespace axccl
