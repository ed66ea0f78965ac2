// What the movers must compute, in code that shares nothing with them: formats are tables of exact values, rounding is
// a search for the nearest, elements are handled one at a time. A complex element is two consecutive scalars. Pure
// functions, thread-safe; slow.
#pragma once

#include <cstdint>
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
  std::vector<Factor> post = {};  // for the result; empty: none
};

// The result of reducing scalar `index` of all sources, as bits in the low bytes.
uint64_t Expected(const OracleRequest& request, size_t index);

// How many of a random test's rounds run: all with AXCCL_TEST_FULL=1, otherwise half.
int Rounds(int all);

struct Pair {
  DataType type;
  Combine combine;
};
// All pairs, and a name for each.
const std::vector<Pair>& AllPairs();
std::string PairName(const Pair& pair);

// Random bits, fast, because the tests fill gigabytes with them. SplitMix64.
class Generator {
 public:
  using result_type = uint64_t;

  explicit Generator(uint64_t seed) : state_(seed) {}

  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return ~uint64_t{0}; }
  uint64_t operator()() {
    uint64_t x = state_ += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
  }

 private:
  uint64_t state_;
};

// A generator from AXCCL_TEST_SEED, or from the system's entropy. Prints the seed once per process.
Generator& Random();

// A random scalar of `type`: a value of ordinary size, any bits, or one of the special codes.
uint64_t RandomElement(DataType type, Generator& random);

// Reads and writes an element as bits.
uint64_t LoadElement(const void* from, size_t index, size_t size);
void StoreElement(void* to, size_t index, size_t size, uint64_t bits);

}  // namespace axccl::kernels
