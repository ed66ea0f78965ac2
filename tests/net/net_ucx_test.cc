// Errors of UCX itself, while the network and all processes are sound.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "tests/harness/client.h"
#include "tests/net/run_on_hosts.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::RankContext;
using harness::TestHosts;

ncclResult_t AllReduce(const Clique& clique) {
  std::vector<int> data(100'000, 1);
  return harness::AwaitCall(ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, clique.comm(),
                                          harness::Cuda(clique.stream())),
                            clique.stream(), clique.comm());
}

class LostMessageTest : public testing::TestWithParam<bool> {};

// What would have come after the message must not wait for it.
TEST_P(LostMessageTest, FailsBothSidesWhichCanMeetAgain) {
  RunOnHosts(2, 2, [](const TestHosts&, RankContext& context) {
    void (*lose_next_message)(bool at_once) = nullptr;
    if (context.rank() == 0) {
      const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
      void* const ucp = dlopen((folder / "liblosing_ucp.so").c_str(), RTLD_NOW);
      ASSERT_NE(ucp, nullptr) << dlerror();
      lose_next_message = reinterpret_cast<void (*)(bool)>(dlsym(ucp, "LoseNextMessage"));
      ASSERT_NE(lose_next_message, nullptr);
    }
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    ASSERT_OK(AllReduce(clique));
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 0) lose_next_message(GetParam());
    ASSERT_TRUE(context.Step("lose a message"));
    ncclResult_t result = ncclSuccess;  // also of the call that sent the message, if that call did not need an answer
    while (result == ncclSuccess && !context.AnyFailed()) result = AllReduce(clique);
    EXPECT_EQ(result, ncclRemoteError) << ncclGetLastError(nullptr);
    if (context.rank() == 0) {
      EXPECT_TRUE(harness::LastErrorHas("a message was lost (UCX: Out of memory)")) << ncclGetLastError(nullptr);
    }
    EXPECT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
    ASSERT_TRUE(context.Step("meet again"));
    Clique again;
    ASSERT_TRUE(again.Init(context));
    EXPECT_OK(AllReduce(again));
  });
}

INSTANTIATE_TEST_SUITE_P(Ends, LostMessageTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "AtOnce" : "Later"; });

}  // namespace
}  // namespace axccl::tests
