// What the movers must compute, written without anything in common with them: formats are tables of exact values,
// rounding is a search for the nearest, elements are handled one at a time. A complex element is two scalars, every
// other one. Pure functions, thread-safe; slow.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "src/base/types.h"

namespace axccl::kernels {

// The value of a code of f16, bf16, e4m3, e5m2 or f32; exact, NaN for NaN codes.
double Decode(DataType type, uint32_t code);

// The code of `type` nearest to `value`, ties to the even code. f16 and bf16 overflow to infinity, fp8 saturates, NaN
// gives the canonical NaN. Not for f64.
uint32_t Encode(DataType type, float value);

struct OracleRequest {
  DataType type;
  Combine combine;
  std::vector<const void*> src;
  std::vector<Factor> pre;  // empty: none
  bool round_factored = false;
  uint64_t post_divisor = 0;
  std::vector<Factor> post = {};  // of the result; empty: none
};

// The scalar that reducing scalar `index` of all sources gives, as bits in the low bytes.
uint64_t Expected(const OracleRequest& request, size_t index);

struct Pair {
  DataType type;
  Combine combine;
};
// All there are, and a name for each.
const std::vector<Pair>& AllPairs();
std::string PairName(const Pair& pair);

// A generator from AXCCL_TEST_SEED, or from the system's entropy. Prints the seed once per process.
std::mt19937_64& Random();

// A scalar of `type`: a value of ordinary size, or any bits at all, or one of the special codes.
uint64_t RandomElement(DataType type, std::mt19937_64& random);

// Reads and writes an element as bits.
uint64_t LoadElement(const void* from, size_t index, size_t size);
void StoreElement(void* to, size_t index, size_t size, uint64_t bits);

}  // namespace axccl::kernels
