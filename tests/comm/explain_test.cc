// axccl-plan explain names the algorithm that a communicator then uses. AXCCL_PLAN_PROGRAM is the program's path.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/harness/client.h"
#include "tests/harness/explained.h"
#include "tests/harness/folder.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

struct Question {
  const char* op;
  size_t bytes;  // of a block
};

void Call(Clique& clique, const Question& question, const std::vector<std::byte*>& in,
          const std::vector<std::byte*>& out) {
  const std::string op = question.op;
  const size_t count = question.bytes / sizeof(float);
  ASSERT_OK(ncclGroupStart());
  for (int i = 0; i < clique.size(); ++i) {
    const auto comm = clique.comm(i);
    const auto stream = Cuda(clique.stream(i));
    const auto k = static_cast<size_t>(i);
    if (op == "all_reduce") {
      ASSERT_OK(ncclAllReduce(in[k], out[k], count, ncclFloat32, ncclSum, comm, stream));
    } else if (op == "all_gather") {
      ASSERT_OK(ncclAllGather(in[k], out[k], count, ncclFloat32, comm, stream));
    } else if (op == "reduce_scatter") {
      ASSERT_OK(ncclReduceScatter(in[k], out[k], count, ncclFloat32, ncclSum, comm, stream));
    } else {
      ASSERT_OK(ncclBroadcast(in[k], out[k], count, ncclFloat32, 0, comm, stream));
    }
  }
  ASSERT_OK(ncclGroupEnd());
  ASSERT_TRUE(clique.Synchronize());
}

struct Setting {
  const char* name;
  const char* value;
};

class ExplainTest : public testing::TestWithParam<Setting> {};

// All ranks are in one process and reach each other's buffers.
TEST_P(ExplainTest, NamesTheAlgorithmThatRuns) {
  constexpr int kRanks = 4;
  const harness::Folder cache;
  RunOptions options;
  options.environment = {{"AXCCL_CACHE_DIR", cache.path()}, {GetParam().name, GetParam().value}};
  RunRanks(
      harness::OneThread(kRanks),
      [&](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        constexpr size_t kMost = size_t{4} << 20;
        std::vector<std::byte*> in(kRanks), out(kRanks);
        for (auto* buffers : {&in, &out}) {
          for (std::byte*& buffer : *buffers)
            ASSERT_OK(ncclMemAlloc(reinterpret_cast<void**>(&buffer), kMost * kRanks));
        }
        for (const char* op : {"all_reduce", "all_gather", "reduce_scatter", "broadcast"}) {
          for (const size_t bytes : {size_t{16}, size_t{4096}, size_t{64} << 10, kMost}) {
            const bool parts = std::string(op) == "all_gather" || std::string(op) == "reduce_scatter";
            ASSERT_NO_FATAL_FAILURE(Call(clique, {op, bytes}, in, out));
            const char* algorithm = nullptr;
            ASSERT_OK(axcclCommGetLastAlgorithm(clique.comm(), &algorithm));
            const std::string question =
                std::string("--op ") + op + " --ranks 4 --bytes " + std::to_string(bytes * (parts ? kRanks : 1));
            EXPECT_EQ(algorithm, harness::ExplainedAlgorithm(AXCCL_PLAN_PROGRAM, question)) << question;
          }
        }
        for (auto* buffers : {&in, &out}) {
          for (std::byte* buffer : *buffers) ASSERT_OK(ncclMemFree(buffer));
        }
      },
      options);
}

INSTANTIATE_TEST_SUITE_P(Settings, ExplainTest,
                         testing::Values(Setting{"NCCL_ALGO", ""}, Setting{"NCCL_ALGO", "ring,tree,bruck"},
                                         Setting{"AXCCL_ORDER", "group"}),
                         [](const auto& info) { return "Nr" + std::to_string(info.index); });

}  // namespace
}  // namespace axccl::tests
