// Questions about the ranks of other machines.
#include "src/comm/net/notices.h"

#include <gtest/gtest.h>

namespace axccl::comm {
namespace {

class Rank final : public NoticeListener {
 public:
  void OnRevoked(int) override {}
  std::vector<std::byte> OnAsked(int, size_t) override { return {}; }
};

// The thread that asks may have the communicator in hand, and not have asked yet, when another one aborts it.
TEST(Ask, EndsAtOnceAfterAnAbort) {
  FarProcesses far;
  far.ids.emplace_back();
  far.machines = {1};
  far.of_rank = {-1, 0};
  Rank rank;
  StopAsking(&rank);
  const auto answer = Ask(far, 1, &rank);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.status().code(), Code::kInvalidUsage) << answer.status().message();
}

}  // namespace
}  // namespace axccl::comm
