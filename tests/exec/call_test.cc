#include "src/exec/call/call.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "tests/harness/float_mode.h"
#include "tests/harness/random.h"

namespace axccl::exec {
namespace {

Factor LoadBits(DataType type, uint64_t bits) { return LoadFactor(type, &bits); }

TEST(LoadFactor, IntegersAreExtendedToTheirSign) {
  EXPECT_EQ(LoadBits(DataType::kInt8, 0x80).i64, -128);
  EXPECT_EQ(LoadBits(DataType::kUint8, 0x80).u64, 128u);
  EXPECT_EQ(LoadBits(DataType::kInt16, 0xfffe).i64, -2);
  EXPECT_EQ(LoadBits(DataType::kUint16, 0xfffe).u64, 0xfffeu);
  EXPECT_EQ(LoadBits(DataType::kInt32, 0xffffffff).i64, -1);
  EXPECT_EQ(LoadBits(DataType::kUint32, 0xffffffff).u64, 0xffffffffu);
  EXPECT_EQ(LoadBits(DataType::kInt64, ~uint64_t{0}).i64, -1);
  EXPECT_EQ(LoadBits(DataType::kUint64, ~uint64_t{0}).u64, ~uint64_t{0});
}

TEST(LoadFactor, WideFloatsAreTakenAsTheyAre) {
  const float f = -1.5f;
  const double d = 1e300;
  EXPECT_EQ(LoadFactor(DataType::kFloat32, &f).f32, f);
  EXPECT_EQ(LoadFactor(DataType::kFloat64, &d).f64, d);
}

TEST(LoadFactor, SmallFloatsAreDecodedExactly) {
  EXPECT_EQ(LoadBits(DataType::kFloat16, 0x3c00).f32, 1.0f);
  EXPECT_EQ(LoadBits(DataType::kFloat16, 0xc100).f32, -2.5f);
  EXPECT_EQ(LoadBits(DataType::kFloat16, 0x7bff).f32, 65504.0f);
  EXPECT_EQ(LoadBits(DataType::kFloat16, 0x0001).f32, std::ldexp(1.0f, -24));
  EXPECT_EQ(LoadBits(DataType::kFloat16, 0xfc00).f32, -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(LoadBits(DataType::kFloat16, 0x7e00).f32));
  EXPECT_EQ(LoadBits(DataType::kBfloat16, 0x3fc0).f32, 1.5f);
  EXPECT_EQ(LoadBits(DataType::kFloat8E4M3, 0x7e).f32, 448.0f);
  EXPECT_EQ(LoadBits(DataType::kFloat8E4M3, 0x01).f32, std::ldexp(1.0f, -9));
  EXPECT_EQ(LoadBits(DataType::kFloat8E4M3, 0xb8).f32, -1.0f);
  EXPECT_TRUE(std::isnan(LoadBits(DataType::kFloat8E4M3, 0x7f).f32));
  EXPECT_EQ(LoadBits(DataType::kFloat8E5M2, 0x7b).f32, 57344.0f);
  EXPECT_EQ(LoadBits(DataType::kFloat8E5M2, 0x01).f32, std::ldexp(1.0f, -16));
  EXPECT_EQ(LoadBits(DataType::kFloat8E5M2, 0x7c).f32, std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(LoadBits(DataType::kFloat8E5M2, 0xff).f32));
}

TEST(FactorOf, RoundsToNearestInEveryModeOfTheThread) {
  constexpr double kTiny = 0x1.8p-140;  // subnormal as float
  for (const harness::FloatMode mode : harness::kFloatModes) {
    const Factor tenth = [&] {
      const harness::ThreadFloatMode thread(mode);
      return FactorOf(DataType::kFloat64, 1, 10);
    }();
    const auto float_of = [&](double value, double divisor) {
      const harness::ThreadFloatMode thread(mode);
      return FactorOf(DataType::kBfloat16, value, divisor).u64;
    };
    const char* const name = harness::FloatModeName(mode);
    EXPECT_EQ(tenth.u64, 0x3fb999999999999aull) << name;
    EXPECT_EQ(float_of(1, 10), 0x3dcccccdu) << name;
    EXPECT_EQ(float_of(1, 3), 0x3eaaaaabu) << name;
    EXPECT_EQ(float_of(-1, 11), 0xbdba2e8cu) << name;
    EXPECT_EQ(float_of(kTiny, 1), 0x300u) << name;
    EXPECT_EQ(float_of(1e300, 1), 0x7f800000u) << name;
  }
}

TEST(DescribeCall, NamesWhatRanksMustAgreeOn) {
  Call call;
  call.kind = plan::Kind::kAllReduce;
  call.type = DataType::kFloat32;
  EXPECT_EQ(DescribeCall(call.Packed(), 1024), "ncclAllReduce count 1024 float sum");
  call.combine = Combine::kMax;
  EXPECT_EQ(DescribeCall(call.Packed(), 1), "ncclAllReduce count 1 float max");
  call.combine = Combine::kSum;
  call.scaling = Scaling::kAverage;
  EXPECT_EQ(DescribeCall(call.Packed(), 1), "ncclAllReduce count 1 float avg");
  call.scaling = Scaling::kPreMultiply;
  EXPECT_EQ(DescribeCall(call.Packed(), 1), "ncclAllReduce count 1 float premulsum");
  call = Call();
  call.kind = plan::Kind::kBroadcast;
  call.type = DataType::kBfloat16;
  call.root = 7;
  EXPECT_EQ(DescribeCall(call.Packed(), 0), "ncclBroadcast count 0 bfloat16 root 7");
  call.type = OpaqueType(12);
  EXPECT_EQ(DescribeCall(call.Packed(), 3), "ncclBroadcast count 3 bits(12) root 7");
  call.kind = plan::Kind::kReduce;
  call.combine = Combine::kCallback;
  call.callback = std::make_shared<Callback>(Callback{nullptr, nullptr, 0xffff});
  EXPECT_EQ(DescribeCall(call.Packed(), 3), "ncclReduce count 3 bits(12) callback 65535 root 7");
}

TEST(DescribeCall, NamesTheFormOfBlocks) {
  Call call;
  call.kind = plan::Kind::kAllToAll;
  call.type = DataType::kFloat32;
  BlockForm form;
  form.shape = {2, {2, 4}};
  form.split = 1;
  form.concat = 0;
  call.views = std::make_shared<const ViewList>();
  EXPECT_EQ(DescribeCall(call.Packed(), 1, form, call.type),
            "axcclAllToAll of blocks [2, 4] float split along dimension 1 concatenated along dimension 0");
  EXPECT_EQ(DescribeCall(call.Packed(), 3, form, DataType::kInt8),
            "axcclAllToAll of 3 operands, first of blocks [2, 4] int8 split along dimension 1 concatenated along "
            "dimension 0");
  BlockForm read;
  ASSERT_TRUE(read.Unpack(form.Packed()));
  std::copy_n(form.shape.sizes, 2, read.shape.sizes);
  EXPECT_EQ(read, form);
}

// The text names the calls as the program made them, from the words of a record alone.
TEST(DescribeCall, NamesTheCallOfTheProgram) {
  const auto name = [](const Call& call) {
    const std::string text = DescribeCall(call.Named(), 1);
    return text.substr(0, text.find(' '));
  };
  Call call;
  call.kind = plan::Kind::kBroadcast;
  EXPECT_EQ(name(call), "ncclBroadcast");
  call.second_name = true;
  EXPECT_EQ(name(call), "ncclBcast");
  call.kind = plan::Kind::kSendRecv;
  EXPECT_EQ(name(call), "ncclRecv");
  call.second_name = false;
  EXPECT_EQ(name(call), "ncclSend");
  ViewList list;
  call.views = std::make_shared<const ViewList>(list);
  EXPECT_EQ(name(call), "axcclSend");
  call.permutes = true;
  EXPECT_EQ(name(call), "axcclCollectivePermute");
  call.permutes = false;
  list.uneven = true;
  call.kind = plan::Kind::kAllToAll;
  call.views = std::make_shared<const ViewList>(list);
  EXPECT_EQ(name(call), "axcclAllToAllV");
  const int64_t extents[1] = {1};
  list.late.input_extents = extents;
  call.views = std::make_shared<const ViewList>(list);
  EXPECT_EQ(name(call), "axcclRaggedAllToAll");
  const int32_t roots[1] = {0};
  list.late = {nullptr, nullptr, nullptr, nullptr, roots};
  call.views = std::make_shared<const ViewList>(list);
  call.kind = plan::Kind::kAllGather;
  EXPECT_EQ(name(call), "axcclBroadcastFrom");
  call.kind = plan::Kind::kReduceScatter;
  EXPECT_EQ(name(call), "axcclReduceTo");
}

TEST(ViewList, HashIsOfWhatRanksMustAgreeOn) {
  ViewOperand operand;
  operand.form.shape = {2, {2, 4}};
  operand.form.concat = 0;
  operand.block_bytes = 8;
  const ViewList list{{operand, operand}};
  ViewList other = list;
  other.operands[1].input_strides[0] = 77;
  EXPECT_EQ(other.Hash(), list.Hash());
  other.operands[1].form.concat = 1;
  EXPECT_NE(other.Hash(), list.Hash());
  other = list;
  other.operands[1].form.shape = {2, {4, 2}};
  EXPECT_NE(other.Hash(), list.Hash());
  other = list;
  other.operands[1].type = DataType::kUint8;
  EXPECT_NE(other.Hash(), list.Hash());
  EXPECT_NE(ViewList{{operand}}.Hash(), list.Hash());
}

// Operands begin at cache lines; where their types differ, bytes are counted.
TEST(ViewList, BlocksFollowEachOther) {
  ViewOperand first, second;
  first.type = second.type = DataType::kFloat32;
  first.block_bytes = 100;
  second.block_bytes = 4;
  EXPECT_EQ((ViewList{{first}}.BlockCount()), 25u);
  EXPECT_EQ((ViewList{{first, second}}.BlockCount()), 33u);
  EXPECT_EQ((ViewList{{first, second}}.CommonType()), DataType::kFloat32);
  second.type = DataType::kInt32;
  EXPECT_EQ((ViewList{{first, second}}.BlockCount()), 132u);
  EXPECT_EQ((ViewList{{first, second}}.CommonType()), DataType::kUint8);
}

// The form of a pipeline's operand has the dimension of the slices first; texts name dimensions as the program does.
TEST(BlockForm, DimensionsAreMovedToTheFrontAndBack) {
  for (int dims = 1; dims <= tensor::kMaxDims; ++dims) {
    BlockForm form;
    form.shape.dims = dims;
    for (int d = 0; d < dims; ++d) form.shape.sizes[d] = 10 + d;
    for (int split = -1; split < dims; ++split) {
      for (int concat = -1; concat < dims; ++concat) {
        form.split = split, form.concat = concat;
        for (int dim = 0; dim < dims; ++dim) {
          const BlockForm first = form.WithFirst(dim);
          EXPECT_EQ(first.shape.sizes[0], 10 + dim);
          // Split and concat are the same dimensions as before, and the others keep their order.
          for (const auto& [before, after] : {std::pair(split, first.split), std::pair(concat, first.concat)}) {
            EXPECT_EQ(after < 0, before < 0);
            if (before >= 0) {
              EXPECT_EQ(first.shape.sizes[after], 10 + before);
            }
          }
          EXPECT_TRUE(std::is_sorted(first.shape.sizes + 1, first.shape.sizes + dims));
          EXPECT_EQ(first.WithFirstAt(dim), form) << dims << " " << dim;
          EXPECT_EQ(form.WithFirstAt(dim).WithFirst(dim), form) << dims << " " << dim;
        }
      }
    }
  }
}

TEST(DescribeCall, NamesTheSlicesOfAPipeline) {
  BlockForm form;
  form.shape = {3, {2, 4, 6}};
  form.split = 2;
  ViewList list;
  ViewOperand operand;
  operand.form = form.WithFirst(1);
  operand.type = DataType::kFloat32;
  list.operands.push_back(operand);
  list.slices = {4, 1, 2, true};
  Call call;
  call.kind = plan::Kind::kReduceScatter;
  call.type = DataType::kFloat32;
  const auto text = [&] {
    call.views = std::make_shared<const ViewList>(list);
    return DescribeCall(call);
  };
  EXPECT_EQ(text(),
            "a pipeline of axcclReduceScatter of blocks [2, 4, 6] float split along dimension 2 sum, in 4 slices along "
            "dimension 1, own last, produced");
  list.slices = {1, 1, 0, false};
  list.scale = 0.5;
  EXPECT_EQ(text(),
            "a pipeline of axcclReduceScatter of blocks [2, 4, 6] float split along dimension 2 sum, in 1 slice along "
            "dimension 1 scaled by 0.5");
}

// Ranks compare them, and the words come from a peer's memory.
TEST(Slices, AreUnpackedAsTheyWerePacked) {
  harness::Random random(harness::Seed());
  for (int i = 0; i < 10000; ++i) {
    const Slices slices = {1 + static_cast<int64_t>(random.Below(65536)), static_cast<int8_t>(random.Below(8)),
                           static_cast<uint8_t>(random.Below(4)), random.OneIn(2)};
    const Slices read = Slices::Unpack(slices.Packed());
    ASSERT_EQ(Text(read), Text(slices)) << "AXCCL_TEST_SEED=" << harness::Seed();
    BlockForm form;
    if (!form.Unpack(random.Next() & 0x070707)) continue;
    for (int d = 0; d < form.shape.dims; ++d) form.shape.sizes[d] = static_cast<int64_t>(random.Next());
    ASSERT_LT(DescribeCall(random.Next(), 1, form, DataType::kInt8, 0, Slices::Unpack(random.Next())).size(), 600u);
  }
  EXPECT_EQ(Slices::Unpack(Slices().Packed()).slices, 0);
}

TEST(BlockForm, OnlyDimensionsThereAreAreUnpacked) {
  BlockForm form;
  for (const uint64_t packed :
       {uint64_t{9}, uint64_t{0xffff80}, uint64_t{0xff0102}, uint64_t{0xff02ff01}, ~uint64_t{0}}) {
    const bool good = form.Unpack(packed);
    EXPECT_EQ(good, packed == 0xff0102) << packed;
  }
}

// The words come from a peer's memory.
TEST(DescribeCall, AnyBitsAreLegal) {
  harness::Random random(harness::Seed());
  for (int i = 0; i < 100000; ++i) {
    const uint64_t packed = random.Next() & (random.OneIn(2) ? ~uint64_t{0} : 0xffff'ffff'0307'0f0full);
    ASSERT_LT(DescribeCall(packed, random.Next()).size(), 120u) << "AXCCL_TEST_SEED=" << harness::Seed();
  }
  EXPECT_EQ(DescribeCall(0xff, 0), "unreadable call");
}

}  // namespace
}  // namespace axccl::exec
