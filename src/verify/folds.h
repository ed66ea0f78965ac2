// Folds as values: the ranks whose contributions they hold, the order of combining, and the points of rounding.
//
// A fold has a number, and two folds have the same number exactly when they were computed by the same expression. In
// floating point, only then do they have the same bits. Numbers 0 to ranks - 1 are contributions as a reduce reads them
// from an input, scaled but not rounded. Every reduce or copy that stores a result rounds it, which makes a new
// expression. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace axccl::verify {

class Folds {
 public:
  explicit Folds(int ranks);

  // Makes the left fold of `terms` (at least one), rounded. Returns false when two terms hold the same rank.
  bool Combine(const std::vector<uint32_t>& terms, uint32_t* fold);
  // Makes the fold of `terms` in an order that is not defined, rounded: another one each time. Returns false as
  // Combine.
  bool CombineInAnyOrder(const std::vector<uint32_t>& terms, uint32_t* fold);
  // The fold that a copy stores: a contribution is rounded, other folds are rounded already.
  uint32_t Rounded(uint32_t fold);

  // The fold, which was stored and thus rounded, after a factor of the result: another expression, as the same factor
  // before the rounding may give other bits.
  uint32_t Scaled(uint32_t fold);

  bool IsFull(uint32_t fold) const;
  // Whether the fold is one left fold of all ranks' contributions, raw or rounded, in ascending order.
  bool IsInOrder(uint32_t fold) const;
  // The memory of all folds.
  size_t bytes() const;
  // The ranks in the fold, as "{0 2 3}".
  std::string ToString(uint32_t fold) const;

 private:
  struct Node {
    uint32_t first = 0;  // index of its terms
    uint32_t count = 0;  // 0 if their order is not defined
    uint32_t next = 0;   // node with the same hash, 0 = none (0 is a contribution, never in a list)
  };

  // Adds a fold with the ranks of all terms, which has no node yet. Returns false when two of them hold the same rank.
  bool AddBits(const std::vector<uint32_t>& terms);
  bool HasTerms(const Node& node, const std::vector<uint32_t>& terms) const;
  uint64_t* Bits(uint32_t fold) { return &bits_[size_t{fold} * words_]; }
  const uint64_t* Bits(uint32_t fold) const { return &bits_[size_t{fold} * words_]; }

  const int ranks_;
  const size_t words_;
  std::vector<uint64_t> bits_;  // [fold] set of ranks
  std::vector<Node> nodes_;     // [fold]
  std::vector<uint32_t> terms_;
  std::unordered_map<uint64_t, uint32_t> by_hash_;
};

}  // namespace axccl::verify
