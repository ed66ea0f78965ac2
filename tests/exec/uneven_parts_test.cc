// How a GPU rank splits uneven calls: into which even calls, in which order, on which rows.
#include "src/exec/cuda/uneven_parts.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace axccl::exec {
namespace {

using On = UnevenPart::On;
using plan::Kind;

constexpr int64_t kColumns = 4;

float g_input[64], g_output[64];

// A call on rows of 4 floats.
Call RowsCall(Kind kind, std::vector<Piece> input, std::vector<Piece> output) {
  ViewList list;
  ViewOperand& operand = list.operands.emplace_back();
  operand.form.shape = {2, {1, kColumns}};
  operand.type = DataType::kFloat32;
  operand.block_bytes = kColumns * sizeof(float);
  operand.input = g_input;
  operand.output = g_output;
  operand.input_strides[0] = operand.output_strides[0] = kColumns;
  operand.input_strides[1] = operand.output_strides[1] = 1;
  operand.dim = 0;
  operand.pieces.input = std::move(input);
  operand.pieces.output = std::move(output);
  list.uneven = true;
  Call call;
  call.kind = kind;
  call.type = DataType::kFloat32;
  call.views = std::make_shared<const ViewList>(std::move(list));
  return call;
}

void ExpectPart(const UnevenPart& part, On on, int peer, Kind kind, int64_t rows, int from, int to) {
  EXPECT_EQ(part.on, on);
  EXPECT_EQ(part.peer, peer);
  EXPECT_EQ(part.call.kind, kind);
  EXPECT_FALSE(part.call.uneven());
  EXPECT_EQ(part.call.count, static_cast<uint64_t>(rows * kColumns));
  EXPECT_EQ(part.call.input, from < 0 ? nullptr : g_input + from * kColumns);
  EXPECT_EQ(part.call.output, to < 0 ? nullptr : g_output + to * kColumns);
  EXPECT_EQ(part.call.views->operands[0].form.shape.sizes[0], rows);
}

TEST(UnevenParts, AllGatherBecomesABroadcastOfEachRank) {
  const Call call = RowsCall(Kind::kAllGather, {{0, 2}}, {{0, 1}, {1, 2}, {3, 0}});
  const auto parts = PartsOfUneven(call, 1, 3);
  ASSERT_TRUE(parts.ok()) << parts.status().message();
  ASSERT_EQ(parts.value().size(), 3u);
  ExpectPart(parts.value()[0], On::kChannel, 0, Kind::kBroadcast, 1, -1, 0);
  ExpectPart(parts.value()[1], On::kChannel, 1, Kind::kBroadcast, 2, 0, 1);
  ExpectPart(parts.value()[2], On::kChannel, 2, Kind::kBroadcast, 0, -1, 0);  // no rows: no place of its own
  for (int root = 0; root < 3; ++root) EXPECT_EQ(parts.value()[static_cast<size_t>(root)].call.root, root);
}

TEST(UnevenParts, ReduceScatterBecomesAReductionToEachRank) {
  const Call call = RowsCall(Kind::kReduceScatter, {{0, 1}, {1, 2}, {3, 3}}, {{0, 3}});
  const auto parts = PartsOfUneven(call, 2, 3);
  ASSERT_TRUE(parts.ok()) << parts.status().message();
  ASSERT_EQ(parts.value().size(), 3u);
  ExpectPart(parts.value()[0], On::kChannel, 0, Kind::kReduce, 1, 0, -1);
  ExpectPart(parts.value()[1], On::kChannel, 1, Kind::kReduce, 2, 1, -1);
  ExpectPart(parts.value()[2], On::kChannel, 2, Kind::kReduce, 3, 3, 0);
}

TEST(UnevenParts, AllToAllBecomesMessagesAndACopy) {
  const Call call = RowsCall(Kind::kAllToAll, {{0, 1}, {1, 2}, {3, 3}}, {{0, 4}, {4, 2}, {6, 5}});
  const auto parts = PartsOfUneven(call, 1, 3);
  ASSERT_TRUE(parts.ok()) << parts.status().message();
  ASSERT_EQ(parts.value().size(), 5u);
  ExpectPart(parts.value()[0], On::kSend, 0, Kind::kSendRecv, 1, 0, -1);
  ExpectPart(parts.value()[1], On::kReceive, 0, Kind::kSendRecv, 4, -1, 0);
  ExpectPart(parts.value()[2], On::kRank, 1, Kind::kSendRecv, 2, 1, 4);
  ExpectPart(parts.value()[3], On::kSend, 2, Kind::kSendRecv, 3, 3, -1);
  ExpectPart(parts.value()[4], On::kReceive, 2, Kind::kSendRecv, 5, -1, 6);
}

TEST(UnevenParts, ScatterBecomesTheRootsMessages) {
  Call call = RowsCall(Kind::kScatter, {}, {{0, 2}});
  call.root = 2;
  const auto received = PartsOfUneven(call, 0, 3);
  ASSERT_TRUE(received.ok()) << received.status().message();
  ASSERT_EQ(received.value().size(), 1u);
  ExpectPart(received.value()[0], On::kReceive, 2, Kind::kSendRecv, 2, -1, 0);
}

TEST(UnevenParts, RowsToOneselfMustAgree) {
  const Call call = RowsCall(Kind::kAllToAll, {{0, 1}, {1, 2}}, {{0, 1}, {1, 1}});
  const Status status = PartsOfUneven(call, 1, 2).status();
  EXPECT_EQ(status.code(), Code::kInvalidUsage);
  EXPECT_NE(status.message().find("gives 2 rows to itself and expects 1"), std::string::npos) << status.message();
}

TEST(UnevenParts, NumbersReadLaterAreRefused) {
  Call call = RowsCall(Kind::kAllToAll, {}, {});
  ViewList list = *call.views;
  const int64_t extents[2] = {1, 1};
  list.late.input_extents = extents;
  call.views = std::make_shared<const ViewList>(list);
  EXPECT_EQ(PartsOfUneven(call, 0, 2).status().code(), Code::kInvalidUsage);
}

}  // namespace
}  // namespace axccl::exec
