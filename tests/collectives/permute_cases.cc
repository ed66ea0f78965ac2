#include "tests/collectives/permute_cases.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

namespace axccl::tests {

using harness::GuardedArena;
using harness::Random;
using harness::Scramble;
using harness::Seed;

namespace {

Element ElementAt(const PermuteCase& c, size_t k, int rank, const Sizes& index) {
  uint64_t hash = Scramble(c.seed, k, static_cast<uint64_t>(rank));
  for (const int64_t i : index) hash = Scramble(hash, static_cast<uint64_t>(i));
  const uint64_t words[2] = {hash, Scramble(hash, 3)};
  Element element;
  std::memcpy(element.data(), words, element.size());
  return element;
}

}  // namespace

std::string PermuteCase::Text() const {
  std::string text = "pairs";
  for (const int64_t id : pairs) text += " " + std::to_string(id);
  return text + ", " + std::to_string(shapes.size()) + " operands, case seed " + std::to_string(seed) +
         ", AXCCL_TEST_SEED=" + std::to_string(Seed());
}

PermuteCase AnyPermuteCase(Random* random, int nranks) {
  PermuteCase c;
  c.seed = random->Next();
  c.nranks = nranks;
  c.source_of.assign(static_cast<size_t>(nranks), -1);
  c.target_of = c.source_of;
  std::vector<int> targets(static_cast<size_t>(nranks));
  std::iota(targets.begin(), targets.end(), 0);
  for (size_t i = targets.size(); i > 1; --i) std::swap(targets[i - 1], targets[random->Below(i)]);
  for (int source = 0; source < nranks; ++source) {
    const int target = targets[static_cast<size_t>(source)];
    if (random->OneIn(3)) continue;
    c.pairs.insert(c.pairs.end(), {source, target});
    c.source_of[static_cast<size_t>(target)] = source;
    c.target_of[static_cast<size_t>(source)] = target;
  }
  for (uint64_t k = random->OneIn(3) ? 1 + random->Below(6) : 1; k > 0; --k) {
    Sizes shape(random->Below(5));
    for (int64_t& size : shape)
      size = random->OneIn(20) ? 0 : static_cast<int64_t>(1 + random->Below(random->OneIn(6) ? 40 : 5));
    c.shapes.push_back(shape);
    c.types.push_back(random->OneIn(3) ? axcclBits(1 + random->Below(16)) : random->Pick(harness::kAllTypes));
  }
  return c;
}

PermutePart::PermutePart(const PermuteCase& c, int rank, std::vector<std::unique_ptr<GuardedArena>>* arenas)
    : c(c), rank(rank) {
  Random random(Scramble(c.seed, 0x717, static_cast<uint64_t>(rank)));
  const int source = c.source_of[static_cast<size_t>(rank)];
  for (size_t k = 0; k < c.shapes.size(); ++k) {
    inputs.emplace_back(c.shapes[k], c.types[k], (*arenas)[random.Below(2)].get(), &random);
    outputs.emplace_back(c.shapes[k], c.types[k], (*arenas)[random.Below(2)].get(), &random);
    ForEachIndex(c.shapes[k], [&](const Sizes& index) {
      inputs.back().Write(index, ElementAt(c, k, rank, index));
      outputs.back().Expect(index, source < 0 ? Element{} : ElementAt(c, k, source, index));
    });
  }
}

ncclResult_t PermutePart::Launch(axcclChannel_t channel, cudaStream_t stream) {
  std::vector<axcclView_t> in, out;
  for (Tensor& tensor : inputs) in.push_back(tensor.View());
  for (Tensor& tensor : outputs) out.push_back(tensor.View());
  const bool sends = c.target_of[static_cast<size_t>(rank)] >= 0;
  return axcclCollectivePermute(static_cast<int>(in.size()), sends ? in.data() : nullptr, out.data(), c.pairs.data(),
                                static_cast<int>(c.pairs.size() / 2), channel, nullptr, stream);
}

void PermutePart::Check() const {
  for (const std::vector<Tensor>* side : {&inputs, &outputs}) {
    for (const Tensor& tensor : *side)
      EXPECT_EQ(tensor.FirstWrong(), -1) << "byte of rank " << rank << (side == &inputs ? " input " : " output ")
                                         << &tensor - side->data() << ", " << c.Text();
  }
}

}  // namespace axccl::tests
