// Random numbers of the tests: counter-based, so that any element of any buffer can be computed alone and by any rank.
//
// Seed() is read from AXCCL_TEST_SEED, else drawn once per process and printed with every failure; setting the variable
// to the printed number replays the run. Everything here is pure or thread-safe.
#pragma once

#include <cstdint>

namespace axccl::harness {

// The process's seed; ranks forked by RunRanks inherit it.
uint64_t Seed();

// A bijective scramble of 64 bits (the finaliser of SplitMix64).
constexpr uint64_t Scramble(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

constexpr uint64_t Scramble(uint64_t a, uint64_t b) { return Scramble(Scramble(a) ^ b); }
constexpr uint64_t Scramble(uint64_t a, uint64_t b, uint64_t c) { return Scramble(Scramble(a, b), c); }

// A stream of random numbers; equal seeds give equal streams on every rank. Not thread-safe.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(Scramble(seed)) {}

  uint64_t Next() { return Scramble(state_++); }
  // Uniform in [0, bound), bound > 0.
  uint64_t Below(uint64_t bound) { return Next() % bound; }
  // True once in `n` on average.
  bool OneIn(uint64_t n) { return Below(n) == 0; }
  // An element of a non-empty container.
  template <class Container>
  auto Pick(const Container& items) {
    return items[Below(items.size())];
  }

 private:
  uint64_t state_;
};

}  // namespace axccl::harness
