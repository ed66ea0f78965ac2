// Ranks choose the same whatever the floating-point modes of their threads, in which costs would round differently.
#include "tests/harness/float_mode.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "src/tune/tune.h"

namespace axccl::tune {
namespace {

std::unique_ptr<Chooser> ChooserOf(const cost::Machine& machine) {
  auto chooser = Chooser::Create(machine, "", 1u << 20, 4);
  EXPECT_TRUE(chooser.ok()) << chooser.status().message();
  return chooser.ok() ? std::move(chooser).value() : nullptr;
}

// The costs of the last few machines are kept.
void ForgetCosts() {
  for (int cores = 1000; cores < 1020; ++cores) {
    cost::Machine other;
    other.cores = cores;
    ChooserOf(other);
  }
}

std::vector<Choice> ChooseIn(harness::FloatMode mode, const cost::Machine& machine) {
  ForgetCosts();
  const harness::ThreadFloatMode thread(mode);
  const auto chooser = ChooserOf(machine);
  std::vector<Choice> choices;
  if (chooser == nullptr) return choices;
  for (int k = 0; k < plan::kNumKinds; ++k) {
    const auto kind = static_cast<plan::Kind>(k);
    for (int ranks = 2; ranks <= (kind == plan::Kind::kSendRecv ? 2 : 9); ++ranks) {
      for (const Access access : {Access::kNone, Access::kCall, Access::kMapped}) {
        for (uint64_t bytes = 4; bytes <= 1u << 24; bytes = bytes * 5 / 3)
          choices.push_back(chooser->Choose({plan::Contract{kind, ranks, 0}, bytes, DataType::kFloat32, access}));
      }
    }
  }
  return choices;
}

TEST(FloatMode, ChoicesAreTheSameInAll) {
  cost::Machine many_cores;
  many_cores.cores = 64;
  for (const cost::Machine& machine : {cost::Machine(), many_cores}) {
    const std::vector<Choice> wanted = ChooseIn(harness::FloatMode::kDefault, machine);
    for (const harness::FloatMode mode : harness::kFloatModes) {
      const std::vector<Choice> choices = ChooseIn(mode, machine);
      ASSERT_EQ(choices.size(), wanted.size());
      int different = 0;
      for (size_t i = 0; i < choices.size(); ++i) {
        const bool same = choices[i].algorithm == wanted[i].algorithm && choices[i].lanes == wanted[i].lanes &&
                          choices[i].tile_bytes == wanted[i].tile_bytes;
        if (!same) ++different;
      }
      EXPECT_EQ(different, 0) << harness::FloatModeName(mode);
    }
  }
}

}  // namespace
}  // namespace axccl::tune
