#include "src/verify/folds.h"

#include <algorithm>
#include <bit>

#include "src/base/hash.h"

namespace axccl::verify {

Folds::Folds(int ranks)
    : ranks_(ranks), words_((static_cast<size_t>(ranks) + 63) / 64), bits_(words_ * ranks, 0), nodes_(ranks) {
  for (int r = 0; r < ranks; ++r) Bits(r)[r / 64] = uint64_t{1} << (r % 64);
}

bool Folds::HasTerms(const Node& node, const std::vector<uint32_t>& terms) const {
  return node.count == terms.size() && std::equal(terms.begin(), terms.end(), terms_.begin() + node.first);
}

bool Folds::AddBits(const std::vector<uint32_t>& terms) {
  const auto made = static_cast<uint32_t>(nodes_.size());
  bits_.resize(bits_.size() + words_, 0);
  for (uint32_t t : terms) {
    for (size_t i = 0; i < words_; ++i) {
      if (Bits(made)[i] & Bits(t)[i]) {
        bits_.resize(bits_.size() - words_);
        return false;
      }
      Bits(made)[i] |= Bits(t)[i];
    }
  }
  return true;
}

bool Folds::CombineInAnyOrder(const std::vector<uint32_t>& terms, uint32_t* fold) {
  *fold = static_cast<uint32_t>(nodes_.size());
  if (!AddBits(terms)) return false;
  nodes_.push_back({});
  return true;
}

bool Folds::Combine(const std::vector<uint32_t>& terms, uint32_t* fold) {
  uint64_t hash = Mix(kHashSeed, terms.size());
  for (uint32_t t : terms) hash = Mix(hash, t);
  uint32_t& head = by_hash_[hash];
  for (uint32_t f = head; f != 0; f = nodes_[f].next) {
    if (!HasTerms(nodes_[f], terms)) continue;
    *fold = f;
    return true;
  }
  const auto made = static_cast<uint32_t>(nodes_.size());
  if (!AddBits(terms)) return false;
  nodes_.push_back({static_cast<uint32_t>(terms_.size()), static_cast<uint32_t>(terms.size()), head});
  terms_.insert(terms_.end(), terms.begin(), terms.end());
  head = made;
  *fold = made;
  return true;
}

uint32_t Folds::Rounded(uint32_t fold) {
  if (fold >= static_cast<uint32_t>(ranks_)) return fold;
  uint32_t rounded = fold;
  (void)Combine({fold}, &rounded);  // a single term has no rank in common with another
  return rounded;
}

uint32_t Folds::Scaled(uint32_t fold) {
  uint32_t scaled = fold;
  (void)Combine({fold}, &scaled);
  return scaled;
}

bool Folds::IsFull(uint32_t fold) const {
  int size = 0;
  for (size_t i = 0; i < words_; ++i) size += std::popcount(Bits(fold)[i]);
  return size == ranks_;
}

bool Folds::IsInOrder(uint32_t fold) const {
  const Node& node = nodes_[fold];
  if (node.count != static_cast<uint32_t>(ranks_)) return fold == 0 && ranks_ == 1;
  for (uint32_t r = 0; r < node.count; ++r) {
    const uint32_t term = terms_[node.first + r];
    const Node& inner = nodes_[term];
    if (term != r && !(inner.count == 1 && terms_[inner.first] == r)) return false;
  }
  return true;
}

size_t Folds::bytes() const {
  constexpr size_t kNode = sizeof(Node) + 4 * sizeof(uint64_t);  // and about that much in the map
  return bits_.size() * sizeof(uint64_t) + terms_.size() * sizeof(uint32_t) + nodes_.size() * kNode;
}

std::string Folds::ToString(uint32_t fold) const {
  std::string text = "{";
  for (int r = 0; r < ranks_; ++r) {
    if ((Bits(fold)[r / 64] >> (r % 64)) & 1) text += (text.size() > 1 ? " " : "") + std::to_string(r);
  }
  return text + "}";
}

}  // namespace axccl::verify
