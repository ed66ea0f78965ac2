#include "src/exec/cuda/pipeline.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "src/base/service_fd.h"
#include "src/device/host/waiting.h"
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

// How long a thread sleeps between two looks: longer and longer.
constexpr std::chrono::microseconds kShortest{20}, kLongest{1000};
constexpr int kLooksAwake = 200;  // before it sleeps

}  // namespace

// ---- creation ----

Result<std::shared_ptr<Pipeline>> CudaPipeline::Make(CudaRank* rank, Channel* on, std::vector<PipelinePart> parts) {
  std::shared_ptr<CudaPipeline> pipeline(new CudaPipeline(rank, *on));
  for (const PipelinePart& part : parts) {
    if (part.channel != nullptr) AXCCL_RETURN_IF_ERROR(pipeline->CheckPart(part));
  }
  const std::lock_guard lock(rank->launching());
  const Scope scope(*pipeline->device_);
  AXCCL_ASSIGN_OR_RETURN(pipeline->interpreter_, CudaInterpreter::Of(*pipeline->device_));
  AXCCL_RETURN_IF_ERROR(pipeline->MakeStreams());
  AXCCL_RETURN_IF_ERROR(pipeline->MakeTasks(on, parts));
  return std::shared_ptr<Pipeline>(std::move(pipeline));
}

CudaPipeline::~CudaPipeline() {
  const Driver& driver = Driver::Loaded();
  const Scope scope(*device_);
  for (CUstream stream : {stream_, ready_}) {
    if (stream != nullptr) driver.cuStreamDestroy(stream);
  }
  for (CUevent event : {reset_, done_}) {
    if (event != nullptr) driver.cuEventDestroy(event);
  }
  for (const auto& [id, event] : users_) driver.cuEventDestroy(event);
  if (memory_ != 0) device_->Free(memory_);
  if (came_ != nullptr) device::cuda::Device::FreeHost(came_);
}

// Whether the part can run here.
Status CudaPipeline::CheckPart(const PipelinePart& part) const {
  const plan::Schedule& schedule = part.program->plan->schedule;
  const char* const name = schedule.algorithm.c_str();
  for (int p = 0; p < part.channel->size(); ++p) {
    const int peer = part.channel->member(p).rank;
    if (rank_->links().of(peer).addresses() || rank_->links().buffers() != nullptr) continue;
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
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuEventCreate(&reset_, CU_EVENT_DISABLE_TIMING));
  return device::cuda::Check(driver.cuEventCreate(&done_, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC),
                             "cuEventCreate");
}

std::vector<CudaPipeline::Place> CudaPipeline::LayOut(const std::vector<PipelinePart>& parts) {
  std::vector<Place> places(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const Side side : {kIn, kOut}) {
      places[i].first[side] = chunks_[side];
      places[i].num[side] = NumChunks(parts[i], side);
      chunks_[side] += places[i].num[side];
    }
  }
  bytes_ = RoundUp((chunks_[kIn] + chunks_[kOut]) * sizeof(uint32_t), kCacheLine);
  for (size_t i = 0; i < parts.size(); ++i) {
    places[i].sliced = bytes_;
    places[i].table = bytes_ += RoundUp(sizeof(cuda::Sliced), kCacheLine);
    bytes_ += RoundUp(CudaViewTableBytes(*parts[i].call.views), kCacheLine);
  }
  return places;
}

Status CudaPipeline::MakeTasks(Channel* on, const std::vector<PipelinePart>& parts) {
  const std::vector<Place> places = LayOut(parts);
  std::vector<std::byte> image(bytes_);
  AXCCL_ASSIGN_OR_RETURN(memory_, device_->Allocate(bytes_));
  AXCCL_ASSIGN_OR_RETURN(void* const came,
                         device_->AllocateHost(std::max<size_t>(chunks_[kOut], 1) * sizeof(uint32_t)));
  came_ = static_cast<uint32_t*>(came);
  uint64_t most_bytes = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const PipelinePart& part = parts[i];
    const Place& place = places[i];
    const Lent table{image.data() + place.table, memory_ + place.table};
    if (part.channel == nullptr) {
      AXCCL_RETURN_IF_ERROR(MakeZeros(on, part, place, table));
      continue;
    }
    cuda::Sliced sliced;
    sliced.slicing = part.slicing;
    sliced.in = reinterpret_cast<uint32_t*>(WordOf(kIn, static_cast<int64_t>(place.first[kIn])));
    sliced.out = reinterpret_cast<uint32_t*>(WordOf(kOut, static_cast<int64_t>(place.first[kOut])));
    sliced.came = came_ + place.first[kOut];
    sliced.num_in = static_cast<uint32_t>(place.num[kIn]);
    sliced.num_out = static_cast<uint32_t>(place.num[kOut]);
    std::memcpy(image.data() + place.sliced, &sliced, sizeof(sliced));
    AXCCL_ASSIGN_OR_RETURN(CudaChannel * channel, rank_->ChannelOf(part.channel, CudaPlace::kPipeline));
    AXCCL_ASSIGN_OR_RETURN(const cuda::Task task, channel->MakeSlicedTask(part, table, memory_ + place.sliced));
    tasks_.push_back(task);
    parts_.push_back({part.channel, part.call, part.program->algorithm});
    lanes_ = std::max(lanes_, static_cast<unsigned>(part.program->lanes.size()));
    most_bytes = std::max(most_bytes, plan::SlotElements(part.slicing) * ElementSize(part.call.type));
  }
  threads_ = CudaInterpreter::ThreadsFor(most_bytes);
  const uint64_t strands = std::max<uint64_t>(tasks_.size() * uint64_t{lanes_}, 1);
  blocks_ = static_cast<unsigned>(std::min(strands, rank_->ShareOf(interpreter_->resident_blocks(), 1, true)));
  return device_->Upload(memory_, image.data(), image.size());
}

Status CudaPipeline::MakeZeros(Channel* on, const PipelinePart& part, const Place& place, const Lent& table) {
  AXCCL_ASSIGN_OR_RETURN(local_, rank_->MakeLocal(on));
  AXCCL_ASSIGN_OR_RETURN(const cuda::Task task, local_->MakeTask(part.call, table, false));
  zeros_.push_back(task);
  first_zero_ = place.first[kOut];
  return Status();
}

// ---- starts ----

Status CudaPipeline::CheckStream(CUstream stream) const {
  AXCCL_ASSIGN_OR_RETURN(const uint64_t capture, CaptureOf(stream));
  if (capture == 0) return Status();
  return MakeStatus(
      Code::kInvalidUsage,
      "stream %p is being captured, and pipelines cannot be part of a graph; use them outside of captures",
      static_cast<void*>(stream));
}

Status CudaPipeline::Start(StreamRef ref) {
  const Scope scope(*device_);
  const auto stream = static_cast<CUstream>(ref.cuda);
  AXCCL_RETURN_IF_ERROR(CheckStream(stream));
  owner_->CountOperation();
  Status started;
  for (const Part& part : parts_) {
    if (started.ok()) started = part.channel->members().Check(-1);
  }
  if (started.ok()) {
    const std::lock_guard lock(rank_->launching());
    started = Enqueue(stream);
  }
  if (started.ok()) return started;
  // An error of an earlier kernel comes first, whichever call of the driver returns it.
  if (const Status health = rank_->CheckDevice(); !health.ok()) started = health;
  owner_->Fail(started);
  return started;
}

Status CudaPipeline::Enqueue(CUstream stream) {
  const Driver& driver = Driver::Loaded();
  const uint32_t start = starts_.load(std::memory_order_relaxed) + 1;
  if (start > 1) AXCCL_RETURN_IF_CUDA_ERROR(driver.cuStreamWaitEvent(stream, done_, 0));
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuMemsetD32Async(memory_, kNotYet, chunks_[kIn] + chunks_[kOut], stream));
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuEventRecord(reset_, stream));
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuStreamWaitEvent(stream_, reset_, 0));
  AXCCL_RETURN_IF_ERROR(rank_->orders().Follow(order_.get(), stream_));
  starts_.store(start, std::memory_order_release);
  if (!zeros_.empty()) AXCCL_RETURN_IF_ERROR(FillZeros());
  for (const Part& part : parts_) {
    AXCCL_ASSIGN_OR_RETURN(CudaChannel * channel, rank_->ChannelOf(part.channel, CudaPlace::kPipeline));
    AXCCL_RETURN_IF_ERROR(channel->Meet().status());
    part.channel->log().Record(part.call);
    owner_->NoteAlgorithm(part.algorithm);
  }
  if (!tasks_.empty()) AXCCL_RETURN_IF_ERROR(Launch(tasks_));
  AXCCL_RETURN_IF_ERROR(rank_->orders().Launched(order_.get(), stream_));
  return device::cuda::Check(driver.cuEventRecord(done_, stream_), "cuEventRecord");
}

Status CudaPipeline::Launch(const std::vector<cuda::Task>& tasks) {
  cuda::Launch launch;
  launch.num_tasks = static_cast<uint32_t>(tasks.size());
  launch.lanes = lanes_;
  std::copy(tasks.begin(), tasks.end(), launch.tasks);
  return interpreter_->Launch(&launch, blocks_, threads_, stream_);
}

Status CudaPipeline::FillZeros() {
  const Driver& driver = Driver::Loaded();
  AXCCL_RETURN_IF_ERROR(Launch(zeros_));
  const size_t num = chunks_[kOut] - first_zero_;
  AXCCL_RETURN_IF_CUDA_ERROR(
      driver.cuMemsetD32Async(WordOf(kOut, static_cast<int64_t>(first_zero_)), kThere, num, stream_));
  return device::cuda::Check(driver.cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(came_ + first_zero_),
                                                     starts_.load(std::memory_order_relaxed), num, stream_),
                             "cuMemsetD32Async");
}

Status CudaPipeline::Finish(StreamRef ref) {
  const Scope scope(*device_);
  const auto stream = static_cast<CUstream>(ref.cuda);
  AXCCL_RETURN_IF_ERROR(CheckStream(stream));
  return device::cuda::Check(Driver::Loaded().cuStreamWaitEvent(stream, done_, 0), "cuStreamWaitEvent");
}

// Streams that wait for a word must have got past it, because the words are freed next.
void CudaPipeline::WaitIdle() {
  const Driver& driver = Driver::Loaded();
  const Scope scope(*device_);
  if (starts_.load(std::memory_order_acquire) == 0) return;
  driver.cuEventSynchronize(done_);
  const std::lock_guard lock(mutex_);
  if (ready_ != nullptr) driver.cuStreamSynchronize(ready_);
  for (const auto& [id, event] : users_) driver.cuEventSynchronize(event);
}

// ---- chunks ----

Status CudaPipeline::Wait(int64_t chunk) {
  auto pause = kShortest;
  for (int looks = 0; !HasCome(chunk); ++looks) {
    // It may have come before that.
    if (owner_->failed() && !HasCome(chunk)) return owner_->Failure();
    if (looks < kLooksAwake) {
      device::host::CpuRelax();
      continue;
    }
    service::PollUntil(-1, 0, service::Clock::now() + pause, {});
    pause = std::min(2 * pause, kLongest);
  }
  return Status();
}

Result<bool> CudaPipeline::Test(int64_t chunk) {
  if (HasCome(chunk)) return true;
  if (owner_->failed() && !HasCome(chunk)) return owner_->Failure();
  return HasCome(chunk);
}

// Enqueues an operation on a word, behind the reset of the last start.
Status CudaPipeline::Use(CUstream stream, const char* what, CUresult (*enqueue)(CUstream, CUdeviceptr),
                         CUdeviceptr word) {
  const Driver& driver = Driver::Loaded();
  const Scope scope(*device_);
  AXCCL_RETURN_IF_ERROR(CheckStream(stream));
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuStreamWaitEvent(stream, reset_, 0));
  AXCCL_RETURN_IF_ERROR(device::cuda::Check(enqueue(stream, word), what));
  unsigned long long id = 0;
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuStreamGetId(stream, &id));
  const std::lock_guard lock(mutex_);
  auto user = std::find_if(users_.begin(), users_.end(), [id](const auto& known) { return known.first == id; });
  if (user == users_.end()) {
    CUevent event = nullptr;
    AXCCL_RETURN_IF_CUDA_ERROR(driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
    user = users_.insert(user, {id, event});
  }
  return device::cuda::Check(driver.cuEventRecord(user->second, stream), "cuEventRecord");
}

Status CudaPipeline::StreamWait(int64_t chunk, StreamRef stream) {
  const auto wait = [](CUstream on, CUdeviceptr word) {
    return Driver::Loaded().cuStreamWaitValue32(on, word, kThere, CU_STREAM_WAIT_VALUE_GEQ);
  };
  return Use(static_cast<CUstream>(stream.cuda), "cuStreamWaitValue32", wait, WordOf(kOut, chunk));
}

Status CudaPipeline::StreamReady(int64_t chunk, StreamRef stream) {
  const auto write = [](CUstream on, CUdeviceptr word) {
    return Driver::Loaded().cuStreamWriteValue32(on, word, kThere, CU_STREAM_WRITE_VALUE_DEFAULT);
  };
  return Use(static_cast<CUstream>(stream.cuda), "cuStreamWriteValue32", write, WordOf(kIn, chunk));
}

void CudaPipeline::Ready(int64_t chunk) {
  const Status status = DeclareReady(WordOf(kIn, chunk));
  if (!status.ok()) owner_->Fail(status);
}

Status CudaPipeline::DeclareReady(CUdeviceptr word) {
  const Driver& driver = Driver::Loaded();
  const Scope scope(*device_);
  const std::lock_guard lock(mutex_);
  if (ready_ == nullptr) AXCCL_RETURN_IF_CUDA_ERROR(driver.cuStreamCreate(&ready_, CU_STREAM_NON_BLOCKING));
  if (const uint32_t start = starts_.load(std::memory_order_acquire); ready_for_ != start) {
    AXCCL_RETURN_IF_CUDA_ERROR(driver.cuStreamWaitEvent(ready_, reset_, 0));
    ready_for_ = start;
  }
  return device::cuda::Check(driver.cuStreamWriteValue32(ready_, word, kThere, CU_STREAM_WRITE_VALUE_DEFAULT),
                             "cuStreamWriteValue32");
}

Pipeline::Word* CudaPipeline::Expose(Side side) {
  static_assert(sizeof(Word) == sizeof(uint32_t));
  return reinterpret_cast<Word*>(WordOf(side, 0));
}

}  // namespace axccl::exec
