#include "src/comm/pipeline.h"

#include <algorithm>
#include <utility>

#include "src/algo/algo.h"
#include "src/base/log.h"
#include "src/base/sizes.h"
#include "src/comm/programs.h"
#include "src/tensor/view.h"
#include "transports/shm/registered_memory.h"

namespace axccl::comm {
namespace {

using exec::Call;
using exec::PipelinePart;
using plan::Contract;
using plan::Kind;

plan::Slicing SlicingOf(const Call& call, const plan::Schedule& schedule) {
  const int64_t rows = call.views->operands[0].form.shape.sizes[0];
  plan::Slicing slicing;
  slicing.count = call.count;
  slicing.row = call.count == 0 ? 1 : call.count / static_cast<uint64_t>(rows);
  slicing.granule = static_cast<uint32_t>(kCacheLine / ElementSize(call.type));
  slicing.slices = schedule.slices;
  slicing.parts = schedule.parts;
  return slicing;
}

// One side of a call's operand.
Call OneSide(const Call& call, bool input) {
  auto list = std::make_shared<exec::ViewList>(*call.views);
  Call one = call;
  if (input) {
    one.output = list->operands[0].output = nullptr;
  } else {
    one.input = list->operands[0].input = nullptr;
  }
  one.views = std::move(list);
  return one;
}

// Where ranks share memory, they fetch from each other's buffers; but what is a few words goes through slots with one
// exchange less, on devices that have such slots.
constexpr uint64_t kFewBytes = 256;

// From here on, plans in which each rank talks to all others take long to prove.
constexpr int kManyRanks = 17;

std::string_view AlgorithmFor(const Call& call, const Contract& contract, bool messages, bool has_slots) {
  if (!has_slots) return algo::kChunkedDirect;
  const bool few = call.count * ElementSize(call.type) <= kFewBytes && !plan::Reduces(call.kind);
  if ((messages || few) && contract.ranks > 1) return algo::kChunkedStaged;
  // Passed on from rank to rank, sums of short floats would be rounded at every rank.
  const bool rounds = plan::Reduces(call.kind) && IsFloat(call.type) && ElementSize(call.type) < sizeof(float);
  if (contract.ranks < kManyRanks || call.group_order || rounds) return algo::kChunkedDirect;
  const auto order = static_cast<algo::ChunkOrder>(call.views->slices.order);
  const std::vector<std::string_view>& names = algo::ChunkedAlgorithms(call.kind);
  const auto orders = algo::ChunkOrders(call.kind, algo::kChunkedRing);
  const bool circles =
      std::find(names.begin(), names.end(), algo::kChunkedRing) != names.end() &&
      (order == algo::ChunkOrder::kDefault || std::find(orders.begin(), orders.end(), order) != orders.end());
  return circles ? algo::kChunkedRing : algo::kChunkedDirect;
}

// Whether the ranks of a plan read each other's outputs; they all do or none does.
bool ReadsOutputs(const exec::Program& program) {
  return std::any_of(program.operands.begin(), program.operands.end(), [&](const plan::Operand& operand) {
    return operand.buffer == plan::Buffer::kOutput && operand.rank != program.rank;
  });
}

}  // namespace

Result<std::shared_ptr<Pipeline>> Pipeline::Make(Communicator* comm, const Request& request) {
  std::shared_ptr<Pipeline> pipeline(new Pipeline);
  AXCCL_RETURN_IF_ERROR(pipeline->AddParts(comm, request));
  // First, so that memory that is refused shifts no pipeline against those of other ranks.
  auto part = pipeline->parts_.begin();
  for (const ChannelTable::Needs& needs : pipeline->needs_) {
    if (needs.lanes != 0) AXCCL_RETURN_IF_ERROR(comm->device().ShareBuffers(&*part++, needs.ranks));
  }
  AXCCL_ASSIGN_OR_RETURN(pipeline->channels_,
                         comm->channels().AddForPipeline(request.on, request.on_name, request.call, pipeline->needs_));
  part = pipeline->parts_.begin();
  for (GroupChannel* const channel : pipeline->channels_) {
    pipeline->memory_bytes_ += channel->part().bytes;
    if (channel->member(0).layout.lanes != 0) (part++)->channel = channel;
  }
  for (PipelinePart& one : pipeline->parts_) one.copies = request.copies;
  Status made = CatchAll("axcclPipelineCreate", [&]() -> Status {
    for (const PipelinePart& one : pipeline->parts_) pipeline->Register(comm, one);
    AXCCL_ASSIGN_OR_RETURN(pipeline->run_, comm->device().MakePipeline(request.on, std::move(pipeline->parts_)));
    pipeline->run_->SetComparison([first = pipeline->channels_[0]] { return first->CompareCreated(); });
    return Status();
  });
  pipeline->parts_.clear();
  if (made.ok()) return pipeline;
  pipeline->Close(comm);
  return made;
}

Status Pipeline::AddParts(Communicator* comm, const Request& request) {
  const exec::Channel& on = *request.on;
  const Call& call = request.call;
  std::vector<int32_t> ranks;
  for (int p = 0; p < on.size(); ++p) ranks.push_back(on.member(p).rank);
  if (call.kind == Kind::kSendRecv) {
    needs_.push_back({.ranks = std::move(ranks), .lanes = 0, .endpoints = 0});
    return AddPermuted(comm, request);
  }
  const Contract contract{call.kind, on.size(), call.root};
  AXCCL_RETURN_IF_ERROR(AddPart(comm, call, contract, on.self(), std::move(ranks)));
  const auto order = static_cast<algo::ChunkOrder>(call.views->slices.order);
  for (const auto side : {exec::Pipeline::kIn, exec::Pipeline::kOut}) {
    const bool input = side == exec::Pipeline::kIn;
    const int blocks = input ? plan::InputBlocks(contract, on.self()) : plan::OutputBlocks(contract, on.self());
    if (blocks > 1) {
      order_[side] = algo::BlockOrder(order, call.kind, on.self(), on.size());
    } else if (blocks == 1) {
      order_[side] = {0};
    }
  }
  return Status();
}

// A message to the target and one from the source, or a copy, or zeros.
Status Pipeline::AddPermuted(Communicator* comm, const Request& request) {
  const exec::Channel& on = *request.on;
  const int32_t mine = on.own().rank;
  const Contract message{Kind::kSendRecv, 2, 0};
  if (request.target >= 0) order_[exec::Pipeline::kIn] = {0};
  order_[exec::Pipeline::kOut] = {0};
  if (request.target == on.self()) {
    Call copy = request.call;
    copy.kind = Kind::kBroadcast;
    AXCCL_RETURN_IF_ERROR(AddPart(comm, copy, {Kind::kBroadcast, 1, 0}, 0, {mine}));
    return Status();
  }
  if (request.target >= 0) {
    AXCCL_RETURN_IF_ERROR(
        AddPart(comm, OneSide(request.call, true), message, 0, {mine, on.member(request.target).rank}));
  }
  if (request.source >= 0) {
    AXCCL_RETURN_IF_ERROR(
        AddPart(comm, OneSide(request.call, false), message, 1, {on.member(request.source).rank, mine}));
    return Status();
  }
  PipelinePart zeros;
  zeros.call = OneSide(request.call, false);
  zeros.slicing.slices = static_cast<uint32_t>(request.call.views->slices.slices);
  parts_.push_back(std::move(zeros));
  return Status();
}

Status Pipeline::AddPart(Communicator* comm, const Call& call, Contract contract, int position,
                         std::vector<int32_t> ranks) {
  const exec::Slices& slices = call.views->slices;
  PipelinePart part;
  part.call = call;
  const auto elsewhere = [&](int32_t rank) {
    return comm->members()[static_cast<size_t>(rank)].reach->inbox() != nullptr;
  };
  const bool messages = std::any_of(ranks.begin(), ranks.end(), elsewhere);
  const bool has_slots = comm->device().traits().stages_in_block;
  AXCCL_ASSIGN_OR_RETURN(
      part.program, comm->GetSlicedProgram(
                        contract, AlgorithmFor(call, contract, messages, has_slots),
                        {static_cast<int>(slices.slices), slices.produced, static_cast<algo::ChunkOrder>(slices.order)},
                        position, messages));
  const plan::Plan& plan = *part.program->plan;
  if (call.group_order && !plan.group_order)
    return MakeStatus(Code::kInternalError, "%s of %d ranks does not reduce in group order",
                      plan.schedule.algorithm.c_str(), contract.ranks);
  part.slicing = SlicingOf(call, plan.schedule);
  part.outputs_are_read = ReadsOutputs(*part.program);
  algorithm_ = part.program->algorithm;
  plan_hash_ = plan.hash;
  memory_bytes_ += part.program->bytes();
  const uint64_t slot = RoundUp(plan::SlotElements(part.slicing) * ElementSize(call.type), kCacheLine);
  parts_.push_back(std::move(part));
  needs_.push_back({std::move(ranks), plan.schedule.lanes, plan.schedule.endpoints,
                    slot * plan.schedule.slots * plan.schedule.lanes * plan::kRotation});
  return Status();
}

// What peers read.
void Pipeline::Register(Communicator* comm, const PipelinePart& part) {
  const exec::ViewOperand& operand = part.call.views->operands[0];
  const auto add = [&](const void* data, int dim, size_t blocks, const int64_t* strides) {
    if (data == nullptr || operand.block_bytes == 0) return;
    const tensor::Extent extent = tensor::ByteExtent(WholeView(operand, dim, static_cast<int>(blocks), strides));
    const auto* const lowest = static_cast<const std::byte*>(data) + extent.begin;
    const auto bytes = static_cast<size_t>(extent.end - extent.begin);
    uint64_t offset = 0;
    if (comm->InHeap(lowest, bytes, &offset)) return;
    const uint64_t number = comm->Register(lowest, bytes);
    if (number != 0) registered_.push_back({lowest, bytes, number});
  };
  registered_.reserve(registered_.size() + 2);
  add(part.call.input, operand.form.split, order_[exec::Pipeline::kIn].size(), operand.input_strides);
  if (part.outputs_are_read)
    add(part.call.output, operand.form.concat, order_[exec::Pipeline::kOut].size(), operand.output_strides);
}

void Pipeline::Close(Communicator* comm) {
  run_ = nullptr;  // it uses the channels
  for (GroupChannel* channel : channels_) (void)comm->channels().Release(channel, [] { return true; });
  channels_.clear();
}

Pipeline::~Pipeline() {
  run_ = nullptr;
  for (const Registration& r : registered_) {
    const Status back = CatchAll("giving registered memory back",
                                 [&] { return shm::RegisteredMemory::Process().Remove(r.buffer, r.bytes, r.number); });
    if (!back.ok()) AXCCL_WARN("%.*s", static_cast<int>(back.message().size()), back.message().data());
  }
}

}  // namespace axccl::comm
