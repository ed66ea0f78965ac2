// board.h: what a rank is doing.
#include "axccl/board.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "src/api/context.h"
#include "src/api/export.h"
#include "src/comm/op_board.h"

using namespace axccl;       // NOLINT: the C entry points
using namespace axccl::api;  // NOLINT

namespace {

axcclOpState_t StateOf(comm::BoardOp::State state) {
  switch (state) {
    case comm::BoardOp::State::kUnderWay:
      return axcclOpUnderWay;
    case comm::BoardOp::State::kFailed:
      return axcclOpFailed;
    case comm::BoardOp::State::kEnqueued:
      return axcclOpEnqueued;
    case comm::BoardOp::State::kDone:
      break;
  }
  return axcclOpDone;
}

axcclOpInfo_t InfoOf(const comm::BoardOp& op) {
  axcclOpInfo_t info{};
  info.state = StateOf(op.state);
  info.use = static_cast<axcclOpUse_t>(op.use);
  info.created = op.channel_id.has_value() ? 1 : 0;
  info.peer = op.peer;
  info.channel_id = op.channel_id.value_or(0);
  info.sequence = op.sequence;
  info.count = op.count;
  info.bytes = op.bytes;
  info.in_chunks = op.in_chunks;
  info.out_chunks = op.out_chunks;
  info.in_ready = op.in_ready;
  info.out_there = op.out_there;
  static_assert(sizeof(info.call) > comm::BoardOp::kMostText);
  op.call.copy(info.call, sizeof(info.call) - 1);
  return info;
}

}  // namespace

AXCCL_API ncclResult_t axcclCommGetOps(ncclComm_t handle, int rank, axcclOpInfo_t* ops, int capacity, int* count) {
  return Entry("axcclCommGetOps", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const CommPin comm, PinComm(handle, call));
    if (!comm->ready()) return comm->Ready(call).status();
    const comm::Communicator& core = *comm->core();
    const int ranks = core.identity().ranks;
    if (rank < 0 || rank >= ranks) return InvalidArgument("%s: argument rank is %d; pass 0..%d", call, rank, ranks - 1);
    if (count == nullptr) return InvalidArgument("%s: argument count is NULL", call);
    if (capacity < 0) return InvalidArgument("%s: argument capacity is %d; pass 0 or more", call, capacity);
    const size_t size = capacity == 0 || ops == nullptr ? 0 : ops[0].size;
    if (capacity > 0 && size < sizeof(size_t))
      return InvalidArgument("%s: argument ops is %s; set ops[0].size = sizeof(axcclOpInfo_t)", call,
                             ops == nullptr ? "NULL" : "without its size");
    Result<comm::Board> found = comm::ReadOpBoard(core, rank);
    if (!found.ok()) return Status(found.status().code(), std::string(call) + ": " + found.status().message().data());
    *count = static_cast<int>(found->total);
    for (size_t i = 0; i < std::min(found->ops.size(), static_cast<size_t>(capacity)); ++i) {
      axcclOpInfo_t info = InfoOf(found->ops[i]);
      info.size = size;
      std::byte* const to = reinterpret_cast<std::byte*>(ops) + i * size;
      std::memset(to, 0, size);
      std::memcpy(to, &info, std::min(size, sizeof(info)));
    }
    return Status();
  });
}
