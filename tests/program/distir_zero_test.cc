// DistIR's example of ZeRO (github.com/microsoft/dist-ir, test/test_memory_optimizations.py): two layers on two devices
// that share the batch. Before, both have both weights; after, each has one, sends it where it is needed, and gets its
// gradient. DistIR's peaks of memory: 3,407,876 bytes before, 2,883,588 and 3,145,732 after.
#include <gtest/gtest.h>

#include "src/program/builder.h"
#include "src/program/check.h"
#include "src/program/simulate.h"
#include "src/program/simulate/distir.h"

namespace axccl::program {
namespace {

const TensorType kWeight{DataType::kFloat16, {512, 512}}, kBatch{DataType::kFloat16, {256, 512}};
const Groups kBoth{{0, 1}};

// The step on one device. Two weights are given by functions: forward and backward, they may have to come first.
class Device {
 public:
  explicit Device(const char* name) : b(name) {}

  template <class First, class Second>
  Function Run(First&& first, Second&& second) {
    const Id x = b.Argument(kBatch), labels = b.Argument(kBatch);
    b.Argument({DataType::kInt32, {}});
    const Id inner = b.Dot(x, first(), {1}, {0});
    const Id output = b.Dot(inner, second(), {1}, {0});
    const Id gradient = b.Elementwise(OpKind::kSubtract, {output, labels});
    const Id of_inner = b.Dot(gradient, second(), {1}, {1}), of_second = b.Dot(inner, gradient, {0}, {0});
    // One operation in DistIR, which keeps its operands to its end: the weight is needed last here.
    const Id of_first = b.Dot(x, of_inner, {0}, {0}), of_x = b.Dot(of_inner, first(), {1}, {1});
    return b.Finish({Sum(of_first), Sum(of_second), of_x});
  }

  Id Sum(Id gradient) {
    return b.Add(OpKind::kAllReduce, {gradient}, kWeight,
                 {{Attr::kFold, Combine::kSum}, {Attr::kGroups, kBoth}, {Attr::kChannel, int64_t{1}}});
  }
  Id Receive(int64_t from, int64_t to) {
    return b.Add(OpKind::kRecv, {}, kWeight, {{Attr::kPairs, Groups{{from, to}}}, {Attr::kChannel, int64_t{2}}});
  }
  // Sends the weight whenever the other device needs it.
  void Send(Id weight, int64_t from, int64_t to) {
    Operation send;
    send.kind = OpKind::kSend;
    send.operands = {weight};
    send.attributes = {{Attr::kPairs, Groups{{from, to}}}, {Attr::kChannel, int64_t{2}}};
    b.Append(send);
  }

  Builder b;
};

std::vector<uint64_t> PeaksOf(const Program& program) {
  EXPECT_TRUE(Check(program).ok()) << Check(program).message();
  DistirModel model({});
  const auto simulation = Simulate(program, &model);
  EXPECT_TRUE(simulation.ok()) << simulation.status().message();
  std::vector<uint64_t> peaks;
  for (const PartMemory& memory : simulation.value().parts) peaks.push_back(memory.peak);
  return peaks;
}

TEST(Distir, ZeroExampleBefore) {
  Device both("main");
  const Id first = both.b.Argument(kWeight), second = both.b.Argument(kWeight);
  Program program;
  program.ranks = 2;
  program.parts.push_back({{0, 1}, both.Run([&] { return first; }, [&] { return second; })});
  EXPECT_EQ(PeaksOf(program), std::vector<uint64_t>{3'407'876});
}

TEST(Distir, ZeroExampleAfter) {
  Device one("one"), two("two");
  const Id first = one.b.Argument(kWeight), second = two.b.Argument(kWeight);
  Program program;
  program.ranks = 2;
  // Device 0 has the first weight and is sent the second one; as seen from both, in the order in which they need them.
  auto own_first = [&, uses = 0]() mutable {
    if (uses++ == 0) one.Send(first, 0, 1);
    return first;
  };
  auto sent_second = [&, uses = 0]() mutable {
    const Id weight = one.Receive(1, 0);
    if (uses++ == 1) one.Send(first, 0, 1);
    return weight;
  };
  const auto sent_first = [&] { return two.Receive(0, 1); };
  auto own_second = [&, uses = 0]() mutable {
    if (uses++ == 0) {
      two.Send(second, 1, 0);
      two.Send(second, 1, 0);
    }
    return second;
  };
  program.parts.push_back({{0}, one.Run(own_first, sent_second)});
  program.parts.push_back({{1}, two.Run(sent_first, own_second)});
  EXPECT_EQ(PeaksOf(program), (std::vector<uint64_t>{2'883'588, 3'145'732}));
}

}  // namespace
}  // namespace axccl::program
