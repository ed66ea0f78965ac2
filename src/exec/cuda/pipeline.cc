#include "src/exec/cuda/pipeline.h"

#include <algorithm>
#include <cstring>

#include "src/exec/cuda/pointers.h"
#include "src/exec/cuda/views.h"

namespace axccl::exec {

using device::cuda::Driver;
using device::cuda::Scope;
namespace cuda = kernels::cuda;

static_assert(cuda::Sliced::kNotYet == Pipeline::kNotYet && cuda::Sliced::kThere == Pipeline::kThere &&
              cuda::Sliced::kFailed == Pipeline::kFailed);

namespace {

size_t NumChunks(const PipelinePart& part, Pipeline::Side side) {
  if (part.channel == nullptr) return side == Pipeline::kOut ? part.slicing.slices : 0;
  const plan::Contract contract{part.call.kind, part.channel->size(), part.call.root};
  const int self = part.channel->self();
  const int blocks = side == Pipeline::kIn ? plan::InputBlocks(contract, self) : plan::OutputBlocks(contract, self);
  return static_cast<size_t>(blocks) * part.slicing.slices;
}

}  // namespace

Result<std::shared_ptr<Pipeline>> CudaPipeline::Make(CudaRank* rank, Channel* on, std::vector<PipelinePart> parts) {
  std::shared_ptr<CudaPipeline> pipeline(new CudaPipeline(rank, *on));
  for (const PipelinePart& part : parts) {
    if (part.channel != nullptr) AXCCL_RETURN_IF_ERROR(pipeline->CheckPart(part));
  }
  const std::lock_guard lock(rank->launching());
  const Scope scope(*pipeline->device_);
  AXCCL_ASSIGN_OR_RETURN(pipeline->interpreter_, CudaInterpreter::Of(*pipeline->device_));
  AXCCL_RETURN_IF_ERROR(pipeline->MakeStreams());
  AXCCL_RETURN_IF_ERROR(pipeline->MakeParts(parts));
  for (Part& part : pipeline->parts_) {
    const Channel& channel = *part.channel;
    if (!rank->links().AreInProcess(channel)) continue;
    const void* const first = rank->links().MembersOf(channel, CudaPlace::kPipeline)[0].block;
    part.group = CopyGroup::Join({first, channel.order_key()}, static_cast<size_t>(channel.size()),
                                 static_cast<size_t>(channel.self()), part.end);
  }
  if (pipeline->wants_copies()) {
    const std::lock_guard attended(pipeline->attended_->mutex);
    pipeline->attended_->pipelines.push_back(pipeline.get());
  }
  return std::shared_ptr<Pipeline>(std::move(pipeline));
}

CudaPipeline::~CudaPipeline() {
  const Driver& driver = Driver::Loaded();
  const Scope scope(*device_);
  {
    const std::lock_guard lock(attended_->mutex);
    auto& pipelines = attended_->pipelines;
    pipelines.erase(std::remove(pipelines.begin(), pipelines.end(), this), pipelines.end());
  }
  if (relief_ != nullptr) driver.cuStreamSynchronize(relief_);
  // If the communicator went first, streams of the application may still be on their way to what is freed here.
  if (events_[0].reset != nullptr) driver.cuEventSynchronize(events_[0].reset);
  for (const auto& [id, event] : users_) driver.cuEventSynchronize(event);
  for (const Part& part : parts_) part.end->Close();
  for (CUevent before : before_) driver.cuEventDestroy(before);
  for (CUstream stream : {stream_, ready_, relief_, turn_}) {
    if (stream != nullptr) driver.cuStreamDestroy(stream);
  }
  for (const Events& events : events_) {
    if (events.reset != nullptr) driver.cuEventDestroy(events.reset);
    if (events.done != nullptr) driver.cuEventDestroy(events.done);
  }
  for (const auto& [id, event] : users_) driver.cuEventDestroy(event);
  if (memory_ != 0) device_->Return(memory_);
  for (const Part& part : parts_) part.stamps.Forget();
  if (initial_ != nullptr) device_->ReturnHost(initial_);
}

// Whether the part can run here.
Status CudaPipeline::CheckPart(const PipelinePart& part) const {
  const plan::Schedule& schedule = part.program->plan->schedule;
  const char* const name = schedule.algorithm.c_str();
  for (int p = 0; p < part.channel->size(); ++p) {
    const int peer = part.channel->member(p).rank;
    if (rank_->links().ReadsBuffersOf(peer)) continue;
    return MakeStatus(Code::kInvalidUsage,
                      "pipelines of GPU ranks are for ranks that read each other's memory, and rank %d does not reach "
                      "that of rank %d so (NCCL_DEBUG=INFO prints why); use devices with peer access, without "
                      "NCCL_P2P_DISABLE, or use axcclAllGather and its siblings on slices",
                      rank_->rank(), peer);
  }
  if (schedule.lanes > cuda::kMaxLanes)
    return MakeStatus(Code::kInvalidUsage,
                      "a pipeline of %d ranks needs %u lanes (%s), and CUDA devices run %u at most; use a channel of "
                      "fewer ranks",
                      part.channel->size(), schedule.lanes, name, cuda::kMaxLanes);
  const uint64_t lines = uint64_t{schedule.lanes} * schedule.endpoints;
  if (lines <= rank_->links().area_lines()) return Status();
  return MakeStatus(Code::kInvalidUsage,
                    "a pipeline of %d ranks needs %llu signals (%s), and a channel of a CUDA device has room for %llu; "
                    "use a channel of fewer ranks",
                    part.channel->size(), static_cast<unsigned long long>(lines), name,
                    static_cast<unsigned long long>(rank_->links().area_lines()));
}

Status CudaPipeline::MakeStreams() {
  const Driver& driver = Driver::Loaded();
  int least = 0, greatest = 0;
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuCtxGetStreamPriorityRange(&least, &greatest));
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, greatest));
  for (Events& events : events_) {
    AXCCL_RETURN_IF_CUDA_ERROR(driver.cuEventCreate(&events.reset, CU_EVENT_DISABLE_TIMING));
    AXCCL_RETURN_IF_CUDA_ERROR(driver.cuEventCreate(&events.done, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
  }
  return Status();
}

std::vector<CudaPipeline::Layout> CudaPipeline::LayOut(const std::vector<PipelinePart>& parts, size_t* shared_bytes) {
  std::vector<Layout> places(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const Side side : {kIn, kOut}) {
      places[i].first[side] = chunks_[side];
      places[i].num[side] = NumChunks(parts[i], side);
      chunks_[side] += places[i].num[side];
    }
    places[i].stamps = *shared_bytes;
    *shared_bytes += StartStamps::Bytes(places[i].num[kIn], places[i].num[kOut]);
  }
  bytes_ = RoundUp(num_words() * sizeof(uint32_t), kCacheLine);
  for (size_t i = 0; i < parts.size(); ++i) {
    places[i].sliced = bytes_;
    places[i].table = bytes_ += RoundUp(sizeof(cuda::Sliced), kCacheLine);
    if (parts[i].channel != nullptr) bytes_ += RoundUp(CudaViewTableBytes(*parts[i].call.views), kCacheLine);
  }
  return places;
}

Status CudaPipeline::MakeParts(const std::vector<PipelinePart>& parts) {
  size_t shared_bytes = 0;
  const std::vector<Layout> layouts = LayOut(parts, &shared_bytes);
  std::vector<std::byte> image(bytes_);
  AXCCL_ASSIGN_OR_RETURN(memory_, device_->Take(bytes_));
  AXCCL_ASSIGN_OR_RETURN(shared_, SharedMemory::Take(*device_, shared_bytes));
  for (size_t i = 0; i < parts.size(); ++i) {
    const PipelinePart& part = parts[i];
    if (part.channel == nullptr) {
      MakeZeros(part, layouts[i]);
      continue;
    }
    AXCCL_RETURN_IF_ERROR(MakePart(part, layouts[i], image.data()));
    lanes_ = std::max(lanes_, static_cast<unsigned>(part.program->lanes.size()));
    most_bytes_ = std::max(most_bytes_, plan::SlotElements(part.slicing) * ElementSize(part.call.type));
  }
  const uint64_t strands = std::max<uint64_t>(parts_.size() * uint64_t{lanes_}, 1);
  blocks_ = static_cast<unsigned>(
      std::min<uint64_t>({strands, rank_->ShareOf(interpreter_->resident_blocks(), 1, true), rank_->most_blocks()}));
  if (wants_copies()) {
    const size_t words = std::max<size_t>(num_words(), 1);
    AXCCL_ASSIGN_OR_RETURN(void* const initial, device_->TakeHost(2 * words * sizeof(uint32_t)));
    initial_ = static_cast<uint32_t*>(initial);
  }
  return device_->Upload(memory_, image.data(), image.size());
}

StartStamps CudaPipeline::StampsOf(const Layout& layout) {
  const StartStamps stamps(shared_->memory() + layout.stamps, layout.num[kIn], layout.num[kOut]);
  stamps.Begin(identity_);
  if (layout.num[kOut] != 0) came_ = stamps.came();
  return stamps;
}

Status CudaPipeline::MakePart(const PipelinePart& part, const Layout& layout, std::byte* image) {
  const StartStamps stamps = StampsOf(layout);
  cuda::Sliced sliced;
  sliced.slicing = part.slicing;
  sliced.in = reinterpret_cast<uint32_t*>(WordOf(kIn, static_cast<int64_t>(layout.first[kIn])));
  sliced.out = reinterpret_cast<uint32_t*>(WordOf(kOut, static_cast<int64_t>(layout.first[kOut])));
  sliced.seen = shared_->OnDevice(stamps.seen());
  sliced.came = shared_->OnDevice(stamps.came());
  sliced.begun = shared_->OnDevice(stamps.begun());
  sliced.ended = shared_->OnDevice(stamps.ended());
  sliced.num_in = static_cast<uint32_t>(layout.num[kIn]);
  sliced.num_out = static_cast<uint32_t>(layout.num[kOut]);
  std::memcpy(image + layout.sliced, &sliced, sizeof(sliced));
  AXCCL_ASSIGN_OR_RETURN(CudaChannel * channel, rank_->ChannelOf(part.channel, CudaPlace::kPipeline));
  const Lent table{image + layout.table, memory_ + layout.table};
  Part made{part.channel, part.call, part.program->algorithm, stamps, {}, nullptr, nullptr, nullptr};
  AXCCL_ASSIGN_OR_RETURN(made.task, channel->MakeSlicedTask(part, table, memory_ + layout.sliced, stamps));
  AXCCL_RETURN_IF_ERROR(MakeLanes(part, sliced, &made));
  parts_.push_back(std::move(made));
  return Status();
}

// Also for a rank that wants a kernel: others must know. One with buffers in memory of the host does, because copies
// between such memory would wait in the host for their turn.
Status CudaPipeline::MakeLanes(const PipelinePart& part, const cuda::Sliced& sliced, Part* made) {
  const ViewOperand& operand = part.call.views->operands[0];
  const auto on_device = [this](const void* data) { return data == nullptr || IsOnDevice(*device_, data); };
  const bool copies = part.copies && rank_->links().AreInProcess(*part.channel) && on_device(operand.input) &&
                      on_device(operand.output);
  AXCCL_ASSIGN_OR_RETURN(made->end,
                         CopyEnd::Make(*device_, part, copies, made->task.signature, made->stamps, sliced.begun));
  if (!copies) return Status();
  AXCCL_ASSIGN_OR_RETURN(made->lanes, CopyLanes::Make(*device_, part, made->end, made->stamps, sliced));
  copying_ = made->end.get();
  if (sliced.num_out != 0) out_end_ = copying_;
  bound_ = false;
  if (relief_ != nullptr) return Status();
  AXCCL_RETURN_IF_CUDA_ERROR(Driver::Loaded().cuStreamCreate(&turn_, CU_STREAM_NON_BLOCKING));
  return device::cuda::Check(Driver::Loaded().cuStreamCreate(&relief_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

void CudaPipeline::MakeZeros(const PipelinePart& part, const Layout& layout) {
  first_zero_ = layout.first[kOut];
  (void)StampsOf(layout);
  const ViewOperand& operand = part.call.views->operands[0];
  const Place place{reinterpret_cast<uint64_t>(operand.output), operand.output_strides};
  if (operand.block_bytes != 0) AppendPlanes(operand.form.shape, ElementSize(operand.type), place, place, &zeros_);
}

// The communicator may be gone.
int CudaPipeline::blocks() const {
  const std::lock_guard lock(mutex_);
  const bool launches =
      std::any_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.lanes == nullptr; });
  return launches || !bound_ ? static_cast<int>(blocks_) : 0;
}

bool CudaPipeline::copies() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.lanes != nullptr; });
}

}  // namespace axccl::exec
