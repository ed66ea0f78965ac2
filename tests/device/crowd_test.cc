// How many ranks share a core, in a process of its own, because the count begins with the first wait.
#include <gtest/gtest.h>

#include <thread>

#include "src/base/processors.h"
#include "src/device/host/waiting.h"

namespace axccl::device::host {
namespace {

TEST(Crowding, ABoundThreadDoesNotCountForTheOthers) {
  const std::vector<int> all = AllowedProcessors();
  if (all.size() < 2) GTEST_SKIP() << "needs two processors";
  const Crowd two(2, false);
  std::thread([&] {
    BindThisThread({all[0]});
    EXPECT_EQ(Crowding(), 2);
  }).join();
  std::thread([&] {
    BindThisThread({all[1]});
    EXPECT_EQ(Crowding(), 1) << "the two may use two processors";
  }).join();
  EXPECT_EQ(Crowding(), 1);
  EXPECT_GT(CurrentPatience().spins, 8);
}

}  // namespace
}  // namespace axccl::device::host
