// The mixer behind all hashes of words: those of tables in this process, and those that ranks compare with each other.
//
// Ranks that communicate run the same version of it (boot::kProtocolVersion), and no file holds its results. Not for
// input that an attacker may choose, and not for text, which plan::HashOf hashes. Usable in constant expressions.
#pragma once

#include <cstdint>

namespace axccl {

inline constexpr uint64_t kHashSeed = 0x9e3779b97f4a7c15ull;

// Returns the hash with one more word mixed in. Begin with kHashSeed or another hash: Mix(a, b) equals Mix(b, a). Two
// calls that differ in exactly one argument return different results.
constexpr uint64_t Mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0xff51afd7ed558ccdull;
  hash = (hash ^ hash >> 32) * 0xc4ceb9fe1a85ec53ull;
  return hash ^ hash >> 29;
}

}  // namespace axccl
