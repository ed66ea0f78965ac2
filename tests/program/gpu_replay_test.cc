// axccl-program replay on GPU ranks, which are those of the software GPU. AXCCL_PROGRAM is its path, AXCCL_SOFTGPU the
// folder of the software GPU's driver.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/harness/command.h"
#include "tests/harness/folder.h"

namespace axccl::program {
namespace {

using harness::Outcome;

class GpuReplayTest : public testing::Test {
 protected:
  Outcome Run(const std::string& program, const std::string& command, const std::string& options,
              const std::string& driver = AXCCL_SOFTGPU) const {
    std::ofstream(folder_.Path("p.axp")) << program;
    return harness::RunCommand("LD_LIBRARY_PATH=" + driver + " AXCCL_DEVICE=cuda SOFTGPU_DEVICES=2 timeout 100 " +
                               AXCCL_PROGRAM + " " + command + " " + folder_.Path("p.axp") + " " + options);
  }
  const harness::Folder folder_;
};

// Every kind of call, groups in another order, messages in both directions and of a rank to itself, a loop.
constexpr char kCalls[] =
    "axccl-program 1\nranks 4\npart main on [0,1,2,3]\n  argument %0 f32[8,6]\n  argument %1 bf16[8]\n"
    "  %2 f32[16,6] = all_gather %0 dim=0 groups=[[2,0],[1,3]] channel=0\n"
    "  %3 f32[8,6], %4 f32[8,6] = all_reduce %0 %0 fold=add groups=[[3,2,1,0]] channel=1\n"
    "  %5 f32[4,6] = reduce_scatter %3 fold=max dim=0 groups=[[0,3],[1,2]] channel=2\n"
    "  %6 f32[4,12] = all_to_all %0 split_dim=0 concat_dim=1 groups=[[0,2],[3,1]] channel=3\n"
    "  %7 f32[8,6] = collective_broadcast %0 groups=[[2,0,3]] channel=4\n"
    "  %8 bf16[8] = collective_permute %1 pairs=[[0,1],[1,3],[3,0]] channel=5\n"
    "  %25 f32[8,6] = collective_reduce %0 fold=add groups=[[1,0]] channel=4\n"
    "  %9 = send %3 pairs=[[0,1],[1,0],[2,2],[3,3]] channel=6\n  %10 f32[8,6] = recv pairs=[[0,1],[1,0],[2,2],[3,3]] "
    "channel=6\n"
    "  %11 i32[] = constant value=0\n  %12 i32[], %13 f32[8,6] = while %11 %3\n  cond\n    argument %14 i32[]\n"
    "    argument %15 f32[8,6]\n    %16 i32[] = constant value=3\n    %17 i1[] = compare %14 %16 direction=LT\n"
    "    return %17\n  body\n    argument %18 i32[]\n    argument %19 f32[8,6]\n    %20 i32[] = constant value=1\n"
    "    %21 i32[] = add %18 %20\n    %22 f32[8,6] = all_reduce %19 fold=add groups=[[0,1],[2,3]] channel=7\n"
    "    return %21 %22\n  return %13\n";

TEST_F(GpuReplayTest, EveryCallHasATime) {
  for (const char* how : {"", " --processes"}) {
    SCOPED_TRACE(how);
    const Outcome o = Run(kCalls, "replay", std::string("--repeat 2") + how);
    ASSERT_EQ(o.exit, 0) << o.text;
    size_t at = 0;
    for (const char* site :
         {"part main\n  %2 all_gather f32[8,6] -> f32[16,6] groups=[[2,0],[1,3]]: 1 call, median ",
          "\n  %3 all_reduce f32[8,6] f32[8,6] -> f32[8,6] f32[8,6] groups=[[3,2,1,0]]: 1 call, median ",
          "\n  %5 reduce_scatter f32[8,6] -> f32[4,6] groups=[[0,3],[1,2]]: 1 call, median ",
          "\n  %6 all_to_all f32[8,6] -> f32[4,12] groups=[[0,2],[3,1]]: 1 call, median ",
          "\n  %7 collective_broadcast f32[8,6] -> f32[8,6] groups=[[2,0,3]]: 1 call, median ",
          "\n  %8 collective_permute bf16[8] -> bf16[8] pairs=[[0,1],[1,3],[3,0]]: 1 call, median ",
          "\n  %25 collective_reduce f32[8,6] -> f32[8,6] groups=[[1,0]]: 1 call, median ",
          "\n  %9 send f32[8,6] pairs=[[0,1],[1,0],[2,2],[3,3]]: 1 call, median ",
          "\n  %10 recv -> f32[8,6] pairs=[[0,1],[1,0],[2,2],[3,3]]: 1 call, median ",
          "\n  %22 all_reduce f32[8,6] -> f32[8,6] groups=[[0,1],[2,3]]: 3 calls, median ", "\na round: "}) {
      const size_t found = o.text.find(site, at);
      ASSERT_NE(found, std::string::npos) << site << o.text;
      at = found;
      const std::string number = o.text.substr(found + std::string(site).size(), 8);
      EXPECT_GT(std::atof(number.c_str()), 0) << site << o.text;
    }
  }
}

size_t CountOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// What the library prints of its calls: those of four ranks, or of some, in each of three rounds.
TEST_F(GpuReplayTest, EveryCallIsOne) {
  const Outcome o = Run(kCalls, "replay", "--repeat 2", AXCCL_SOFTGPU " NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL");
  ASSERT_EQ(o.exit, 0) << o.text;
  const struct {
    const char* text;
    size_t ranks;
  } calls[] = {{"axcclAllGather of blocks [8, 6] float concatenated along dimension 0", 4},
               {"axcclAllReduce of 2 operands, first of blocks [8, 6] float sum", 4},
               {"axcclReduceScatter of blocks [4, 6] float split along dimension 0 max", 4},
               {"axcclAllToAll of blocks ", 4},
               {"axcclBroadcast of blocks [8, 6] float", 3},
               {"axcclAllReduce of blocks [8, 6] float sum", 4 * 3}};
  for (const auto& call : calls) EXPECT_EQ(CountOf(o.text, call.text), 3 * call.ranks) << call.text << o.text;
}

TEST_F(GpuReplayTest, NamesWhatIsMissing) {
  Outcome o = Run(kCalls, "replay", "", "/nowhere");
  EXPECT_EQ(o.exit, 1);
  EXPECT_EQ(o.text.find("axccl-program: AXCCL_DEVICE is cuda, and there is no CUDA driver: "), 0u) << o.text;
  o = Run(kCalls, "run", "");
  EXPECT_EQ(o.exit, 2);
  EXPECT_NE(o.text.find("run and calibrate have host ranks only"), std::string::npos) << o.text;
  std::string many = kCalls;
  many.replace(many.find("value=3"), 7, "value=70000");
  o = Run(many, "replay", "--repeat 1");
  EXPECT_EQ(o.exit, 1);
  EXPECT_NE(o.text.find("calls in a round, and 65536 can be timed on a GPU"), std::string::npos) << o.text;
}

}  // namespace
}  // namespace axccl::program
