#include "tests/harness/gpus_here.h"

#include <gtest/gtest.h>

namespace axccl::harness {
namespace {

TEST(GpusHere, TellWhatATestLacks) {
  const GpusHere software, one{false, 1}, two{false, 2};
  for (const GpusHere& here : {software, one, two}) {
    EXPECT_EQ(here.Lack({}), "");
    EXPECT_EQ(here.Lack({{"NCCL_P2P_DISABLE", "1"}, {"SOFTGPU_COUNT_CALLS", "1"}, {"SOFTGPU_DEVICES", "1"}}), "");
  }
  EXPECT_EQ(software.Lack({{"SOFTGPU_IPC", "0"}, {"SOFTGPU_DEVICES", "8"}, {kNeedsGpus, "8"}}), "");
  EXPECT_EQ(one.Lack({{"SOFTGPU_DEVICES", "2"}}), "");
  EXPECT_EQ(one.Lack({{"SOFTGPU_DEVICES", "2"}, {kNeedsGpus, "2"}}), "needs 2 GPUs");
  EXPECT_EQ(two.Lack({{"SOFTGPU_DEVICES", "2"}, {kNeedsGpus, "2"}}), "");
  EXPECT_EQ(two.Lack({{"SOFTGPU_DEVICES", "2"}, {"SOFTGPU_IPC", "0"}}), "needs the software GPU: it sets SOFTGPU_IPC");
  EXPECT_EQ(two.Lack({{"SOFTGPU_DEVICES", "0"}}), "needs the software GPU: it sets SOFTGPU_DEVICES");
}

}  // namespace
}  // namespace axccl::harness
