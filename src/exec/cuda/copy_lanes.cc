#include "src/exec/cuda/copy_lanes.h"

#include <algorithm>
#include <utility>

namespace axccl::exec {

using device::cuda::Check;
using device::cuda::Driver;
using device::cuda::Scope;
using plan::OpKind;

namespace {

// Operations of a start for one chunk: more take longer to enqueue than a kernel takes to copy.
constexpr size_t kMostPieces = 4096;

}  // namespace

Result<std::unique_ptr<CopyLanes>> CopyLanes::Make(const device::cuda::Device& device, const PipelinePart& part,
                                                   std::shared_ptr<CopyEnd> end, const StartStamps& stamps,
                                                   const kernels::cuda::Sliced& words) {
  std::unique_ptr<CopyLanes> lanes(new CopyLanes(device, part, std::move(end), stamps, words));
  AXCCL_RETURN_IF_ERROR(lanes->CheckPieces());
  AXCCL_RETURN_IF_ERROR(lanes->MakeLanes());
  return lanes;
}

CopyLanes::~CopyLanes() {
  const Driver& driver = Driver::Loaded();
  const Scope scope(device_);
  for (const Lane& lane : lanes_) {
    if (lane.stream != nullptr) driver.cuStreamDestroy(lane.stream);
    if (lane.end != nullptr) driver.cuEventDestroy(lane.end);
  }
  if (begin_ != nullptr) driver.cuEventDestroy(begin_);
}

Status CopyLanes::MakeLanes() {
  const Driver& driver = Driver::Loaded();
  int least = 0, greatest = 0;
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuCtxGetStreamPriorityRange(&least, &greatest));
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuEventCreate(&begin_, CU_EVENT_DISABLE_TIMING));
  lanes_.resize(part_.program->lanes.size());
  for (size_t l = 0; l < lanes_.size(); ++l) {
    AXCCL_RETURN_IF_CUDA_ERROR(driver.cuStreamCreateWithPriority(&lanes_[l].stream, CU_STREAM_NON_BLOCKING, greatest));
    AXCCL_RETURN_IF_CUDA_ERROR(driver.cuEventCreate(&lanes_[l].end, CU_EVENT_DISABLE_TIMING));
  }
  return Status();
}

// ---- where chunks are ----

tensor::Shape CopyLanes::ShapeOf(uint32_t slice) const {
  tensor::Shape shape = part_.call.views->operands[0].form.shape;
  const plan::Range range = plan::ResolveSlice(part_.slicing, slice);
  shape.sizes[0] = static_cast<int64_t>(range.count / part_.slicing.row);
  return shape;
}

Place CopyLanes::PlaceOf(const plan::Operand& operand, uint32_t slice) const {
  const ViewOperand& view = ends_[static_cast<size_t>(operand.rank)]->call().views->operands[0];
  const plan::Contract contract{part_.call.kind, part_.channel->size(), part_.call.root};
  const bool input = operand.buffer == plan::Buffer::kInput;
  const int64_t* const strides = input ? view.input_strides : view.output_strides;
  const int blocks = input ? plan::InputBlocks(contract, operand.rank) : plan::OutputBlocks(contract, operand.rank);
  const int64_t step = BlockStep(view, input ? view.form.split : view.form.concat, blocks, strides);
  const auto rows = static_cast<int64_t>(plan::ResolveSlice(part_.slicing, slice).begin / part_.slicing.row);
  const int64_t offset = operand.block * step + rows * strides[0] * static_cast<int64_t>(ElementSize(view.type));
  const void* const data = input ? view.input : view.output;
  return {reinterpret_cast<uint64_t>(data) + static_cast<uint64_t>(offset), strides};
}

// Of the operands of this rank. Those of others are looked at when they are known.
Status CopyLanes::CheckPieces() const {
  const ViewOperand& view = part_.call.views->operands[0];
  if (view.block_bytes == 0) return Status();
  const tensor::Shape shape = ShapeOf(0);
  const size_t element = ElementSize(view.type);
  const Place in{0, view.input_strides}, out{0, view.output_strides};
  size_t pieces = 0;
  if (view.input != nullptr) pieces = NumPlanes(shape, element, in, in);
  if (view.output != nullptr) pieces = std::max(pieces, NumPlanes(shape, element, out, out));
  if (view.input != nullptr && view.output != nullptr) pieces = std::max(pieces, NumPlanes(shape, element, out, in));
  return CheckPieces(pieces, end_->rank(), end_->rank());
}

Status CopyLanes::CheckPieces(size_t pieces, int from, int to) const {
  if (pieces <= kMostPieces) return Status();
  return MakeStatus(
      Code::kInvalidArgument,
      "%s: a chunk is in %zu pieces for copy engines, with the strides of rank %d and of rank %d, and may "
      "be in %zu; use axcclEngineKernel, other strides or more slices",
      DescribeCall(part_.call).c_str(), pieces, from, to, kMostPieces);
}

// ---- from steps to operations ----

Status CopyLanes::Bind(std::vector<std::shared_ptr<CopyEnd>> ends) {
  for (const auto& end : ends) {
    if (end->signature() == end_->signature()) continue;
    return MakeStatus(
        Code::kInvalidUsage,
        "mismatch: rank %d started %s, rank %d has %s; all ranks of a channel create the same pipelines in "
        "the same order",
        end_->rank(), DescribeCall(end_->call()).c_str(), end->rank(), DescribeCall(end->call()).c_str());
  }
  ends_ = std::move(ends);
  for (uint32_t l = 0; l < lanes_.size(); ++l) {
    for (const Step& step : part_.program->lanes[l]) AXCCL_RETURN_IF_ERROR(Translate(step, l, &lanes_[l].ops));
  }
  return Status();
}

Status CopyLanes::Translate(const Step& step, uint32_t lane, std::vector<Op>* ops) const {
  switch (step.kind) {
    case OpKind::kWait:
      ops->push_back(
          {Kind::kWait, step.peer, 0, end_->FlagOf({step.peer, step.from_lane, step.endpoint, step.value}), {}});
      break;
    case OpKind::kSignal:
      AddSignal(step, lane, ops);
      break;
    case OpKind::kAwait:
      ops->push_back({Kind::kAwait, 0, step.chunk, words_.in + step.chunk, {}});
      break;
    case OpKind::kNotify:
      ops->push_back({Kind::kNotify, 0, step.chunk, words_.out + step.chunk, {}});
      break;
    default:
      return AddCopies(step, ops);
  }
  return Status();
}

// Members that do not wait for the signal have no flag for it.
void CopyLanes::AddSignal(const Step& step, uint32_t lane, std::vector<Op>* ops) const {
  const int self = part_.channel->self();
  for (int p = 0; p < part_.channel->size(); ++p) {
    if (step.peer == plan::kAllPeers ? p == self : p != step.peer) continue;
    const uint32_t* const flag = ends_[static_cast<size_t>(p)]->FlagOf({self, lane, step.endpoint, step.value});
    if (flag != nullptr) ops->push_back({Kind::kSignal, p, 0, flag, {}});
  }
}

Status CopyLanes::AddCopies(const Step& step, std::vector<Op>* ops) const {
  const plan::Operand* const operands = part_.program->operands.data() + step.operands;
  for (uint32_t i = 0; i < step.parts; ++i) {
    const uint32_t slice = part_.program->data_parts[step.data_parts + i];
    for (uint32_t d = 0; d < step.num_dst; ++d)
      AXCCL_RETURN_IF_ERROR(AddCopy(operands[d], operands[step.num_dst], slice, ops));
  }
  return Status();
}

Status CopyLanes::AddCopy(const plan::Operand& to, const plan::Operand& from, uint32_t slice,
                          std::vector<Op>* ops) const {
  const size_t element = ElementSize(part_.call.type);
  const tensor::Shape shape = ShapeOf(slice);
  const Place target = PlaceOf(to, slice), source = PlaceOf(from, slice);
  if (tensor::Elements(shape) == 0 || target.address == source.address) return Status();
  const auto rank_of = [&](const plan::Operand& operand) { return ends_[static_cast<size_t>(operand.rank)]->rank(); };
  AXCCL_RETURN_IF_ERROR(CheckPieces(NumPlanes(shape, element, target, source), rank_of(from), rank_of(to)));
  std::vector<Plane> planes;
  AppendPlanes(shape, element, target, source, &planes);
  for (const Plane& plane : planes) ops->push_back({Kind::kCopy, 0, 0, nullptr, plane});
  return Status();
}

// ---- starts ----

Status CopyLanes::CheckPeers(uint32_t start) const {
  for (const auto& end : ends_) {
    if (end == end_ || end->Admits(start)) continue;
    return MakeStatus(Code::kInvalidUsage,
                      "start %u of the pipeline (%s) on rank %d: rank %d has destroyed it before; all ranks start a "
                      "pipeline equally often before they destroy it",
                      start, DescribeCall(end_->call()).c_str(), end_->rank(), end->rank());
  }
  return Status();
}

Status CopyLanes::Enqueue(uint32_t start, CUstream stream) {
  const Driver& driver = Driver::Loaded();
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuEventRecord(begin_, stream));
  Status enqueued;
  for (const Lane& lane : lanes_) {
    if (enqueued.ok()) enqueued = Enqueue(lane, start);
    AXCCL_RETURN_IF_CUDA_ERROR(driver.cuEventRecord(lane.end, lane.stream));
    AXCCL_RETURN_IF_CUDA_ERROR(driver.cuStreamWaitEvent(stream, lane.end, 0));
  }
  return enqueued.ok() ? CopyEnd::WriteWord(words_.ended, start, stream) : enqueued;
}

Status CopyLanes::Enqueue(const Lane& lane, uint32_t start) const {
  AXCCL_RETURN_IF_CUDA_ERROR(Driver::Loaded().cuStreamWaitEvent(lane.stream, begin_, 0));
  for (const Op& op : lane.ops) AXCCL_RETURN_IF_ERROR(Enqueue(op, start, lane.stream));
  return Status();
}

// A chunk's word is copied, so that what has been enqueued says that it failed once the end is broken.
Status CopyLanes::Enqueue(const Op& op, uint32_t start, CUstream stream) const {
  switch (op.kind) {
    case Kind::kWait:
      return CopyEnd::AwaitWord(op.word, start, stream);
    case Kind::kSignal:
      return CopyEnd::WriteWord(op.word, start, stream);
    case Kind::kAwait:
      AXCCL_RETURN_IF_ERROR(CopyEnd::AwaitWord(op.word, Pipeline::kThere, stream));
      return CopyEnd::WriteWord(words_.seen + op.chunk, start, stream);
    case Kind::kCopy:
      return CopyPlane(op.plane, stream);
    default:
      AXCCL_RETURN_IF_ERROR(
          Check(Driver::Loaded().cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(op.word),
                                               reinterpret_cast<CUdeviceptr>(end_->truth()), sizeof(uint32_t), stream),
                "cuMemcpyAsync"));
      return CopyEnd::WriteWord(words_.came + op.chunk, start, stream);
  }
}

// Stays with a lane for some looks, as it takes several to find out that a member is gone (CudaWaits).
CopyLanes::Missing CopyLanes::FindMissing(uint32_t start) {
  constexpr size_t kLooksAtLane = 6;
  const int self = part_.channel->self();
  const size_t first = looks_++ / kLooksAtLane;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const Lane& lane = lanes_[(first + i) % lanes_.size()];
    const auto waits = [&](const Op& op) {
      return (op.kind == Kind::kWait && !CopyEnd::Reached(op.word, start)) ||
             (op.kind == Kind::kAwait && !CopyEnd::Reached(stamps_.seen() + op.chunk, start));
    };
    const auto missing = std::find_if(lane.ops.begin(), lane.ops.end(), waits);
    if (missing == lane.ops.end()) continue;
    if (missing->kind == Kind::kAwait) return {self, missing->chunk};
    if (missing->position != self) return {missing->position, 0};
  }
  return {};
}

}  // namespace axccl::exec
