// The starts of a pipeline on a GPU, and what calls on its chunks enqueue.
#include <algorithm>
#include <chrono>

#include "src/base/service_fd.h"
#include "src/device/host/waiting.h"
#include "src/exec/cuda/pipeline.h"

namespace axccl::exec {

using device::cuda::Driver;
using device::cuda::Scope;
namespace cuda = kernels::cuda;

namespace {

// How long a thread sleeps between two looks: longer and longer.
constexpr std::chrono::microseconds kShortest{20}, kLongest{1000};
constexpr int kLooksAwake = 200;  // before it sleeps

}  // namespace

Status CudaPipeline::CheckStream(CUstream stream) const {
  AXCCL_ASSIGN_OR_RETURN(const uint64_t capture, CaptureOf(*device_, stream));
  AXCCL_RETURN_IF_ERROR(CheckContextOf(*device_, {stream, capture}));
  const uint64_t started = capture_.load(std::memory_order_acquire);
  if (is_abandoned())
    return MakeStatus(Code::kInvalidUsage,
                      "the capture in which the pipeline was started has ended without axcclPipelineFinish, so nothing "
                      "will come of that start; start and finish the pipeline in one capture");
  if (capture == started) return Status();
  if (started == 0)
    return MakeStatus(Code::kInvalidUsage,
                      "stream %p is being captured, and the pipeline was started outside of that capture; start and "
                      "finish it inside, or use a stream that is not captured",
                      static_cast<void*>(stream));
  if (capture != 0)
    return MakeStatus(Code::kInvalidUsage,
                      "stream %p is captured into another graph than the pipeline's start; use a stream of the same "
                      "capture, or one that is not captured so far",
                      static_cast<void*>(stream));
  // Another stream joins the capture, which the legacy stream cannot.
  if (stream != nullptr && stream != CU_STREAM_LEGACY) return Status();
  return MakeStatus(Code::kInvalidUsage,
                    "the stream is the legacy one, which cannot be captured, and the pipeline was started in a "
                    "capture; use another stream");
}

// The driver has taken the stream out of the capture if that has ended.
bool CudaPipeline::is_abandoned() const {
  const uint64_t started = capture_.load(std::memory_order_acquire);
  if (started == 0) return false;
  const Scope scope(*device_);
  const Result<uint64_t> capture = CaptureOf(*device_, stream_);
  return capture.ok() && capture.value() != started;
}

Status CudaPipeline::Start(StreamRef ref) {
  const Scope scope(*device_);
  const auto stream = static_cast<CUstream>(ref.cuda);
  AXCCL_ASSIGN_OR_RETURN(const uint64_t capture, CaptureOf(*device_, stream));
  AXCCL_RETURN_IF_ERROR(CheckContextOf(*device_, {stream, capture}));
  if (capture != 0 && wants_copies())
    return MakeStatus(Code::kInvalidUsage,
                      "stream %p is being captured, and signals between copy engines differ from start to start, which "
                      "a graph cannot do; create the pipeline with axcclEngineKernel",
                      static_cast<void*>(stream));
  owner_->CountOperation();
  Status started = comparison_ ? comparison_() : Status();
  for (const Part& part : parts_) {
    if (started.ok()) started = part.channel->members().Check(-1);
  }
  if (started.ok()) {
    const std::lock_guard lock(rank_->launching());
    started = Enqueue(stream, capture);
  }
  if (IsBroken()) Break();  // before this start, perhaps
  if (started.ok()) return started;
  // An error of an earlier kernel comes first, whichever call of the driver returns it.
  if (const Status health = rank_->CheckDevice(); !health.ok()) started = health;
  owner_->Fail(started);
  return started;
}

// The application orders the launches of graphs with each other and with starts outside of them.
Status CudaPipeline::Enqueue(CUstream stream, uint64_t capture) {
  const Driver& driver = Driver::Loaded();
  const bool captured = capture != 0;
  const Events& events = events_[captured];
  const bool again = captured ? capture_.load(std::memory_order_relaxed) == capture : starts_ > 0;
  if (again) AXCCL_RETURN_IF_ERROR(FollowEnd(stream, captured));
  const uint32_t start = captured ? 0 : starts_.load(std::memory_order_relaxed) + 1;
  AXCCL_RETURN_IF_ERROR(ResetWords(stream));
  for (const Part& part : parts_) {
    if (part.end->copies()) AXCCL_RETURN_IF_ERROR(part.end->WriteBegun(start, stream));
  }
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuEventRecord(events.reset, stream));
  capture_.store(capture, std::memory_order_release);
  if (!captured) starts_.store(start, std::memory_order_release);
  AXCCL_RETURN_IF_ERROR(Record(start, captured));
  if (captured) return Run(0, true);
  AXCCL_RETURN_IF_ERROR(Advance());
  return enqueued_ == start ? Status() : Reserve(start);
}

Status CudaPipeline::ResetWords(CUstream stream) {
  const Driver& driver = Driver::Loaded();
  if (initial_ == nullptr)
    return device::cuda::Check(driver.cuMemsetD32Async(memory_, kNotYet, num_words(), stream), "cuMemsetD32Async");
  return device::cuda::Check(
      driver.cuMemcpyAsync(memory_, reinterpret_cast<CUdeviceptr>(initial_), num_words() * sizeof(uint32_t), stream),
      "cuMemcpyAsync");
}

Status CudaPipeline::Record(uint32_t stamp, bool captured) {
  for (const Part& part : parts_) {
    AXCCL_ASSIGN_OR_RETURN(CudaChannel * channel, rank_->ChannelOf(part.channel, CudaPlace::kPipeline));
    AXCCL_RETURN_IF_ERROR(channel->Meet().status());
    part.channel->log().Record(part.call, {shared_->OffsetOf(part.stamps.memory()), identity_, stamp, captured});
    if (captured) channel->Replays();
    owner_->NoteAlgorithm(part.algorithm);
  }
  return Status();
}

// Kernels of ranks that do not know each other wait on the device; copy engines cannot.
Status CudaPipeline::Advance() {
  if (IsBroken()) return Status();
  AXCCL_ASSIGN_OR_RETURN(const bool bound, Bind());
  const uint32_t starts = starts_.load(std::memory_order_relaxed);
  for (uint32_t next = enqueued_.load(std::memory_order_relaxed) + 1; bound && next != starts + 1; ++next) {
    AXCCL_RETURN_IF_ERROR(Run(next, false));
    enqueued_.store(next, std::memory_order_release);
  }
  return Status();
}

// What is called on the channel after a start that is not enqueued yet comes behind it, as on other ranks.
Status CudaPipeline::Reserve(uint32_t start) {
  const Driver& driver = Driver::Loaded();
  AXCCL_ASSIGN_OR_RETURN(const OrderedStream turn, OrderedStream::Of(*device_, turn_, 0));
  AXCCL_RETURN_IF_ERROR(rank_->orders().Follow(order_.get(), turn));
  CUevent before = nullptr;
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuEventCreate(&before, CU_EVENT_DISABLE_TIMING));
  before_.push_back(before);
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuEventRecord(before, turn_));
  AXCCL_RETURN_IF_ERROR(copying_->AwaitEnded(start, turn_));
  return rank_->orders().Launched(order_.get(), turn).status();
}

// Makes the pipeline's stream wait for what is before the next start.
Status CudaPipeline::TakeTurn(const OrderedStream& own) {
  if (own.capture != 0 || before_.empty()) return rank_->orders().Follow(order_.get(), own);
  const Driver& driver = Driver::Loaded();
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuStreamWaitEvent(stream_, before_.front(), 0));
  driver.cuEventDestroy(before_.front());
  before_.pop_front();
  return Status();
}

Result<bool> CudaPipeline::Bind() {
  for (Part& part : parts_) {
    if (bound_) return true;
    AXCCL_ASSIGN_OR_RETURN(const bool bound, BindPart(&part));
    if (!bound) return false;
  }
  const std::lock_guard lock(mutex_);
  bound_ = true;
  return true;
}

// All ranks of the part decide alike.
Result<bool> CudaPipeline::BindPart(Part* part) {
  if (part->lanes == nullptr || !part->lanes->ends().empty()) return true;
  AXCCL_ASSIGN_OR_RETURN(CudaChannel * channel, rank_->ChannelOf(part->channel, CudaPlace::kPipeline));
  AXCCL_ASSIGN_OR_RETURN(const int missing, channel->Meet());
  if (missing >= 0) return false;
  std::vector<std::shared_ptr<CopyEnd>> ends = part->group->Ends();
  if (ends.empty()) return false;
  const bool all = std::all_of(ends.begin(), ends.end(), [](const auto& end) { return end->copies(); });
  const std::lock_guard lock(mutex_);
  if (part->end->broken()) return false;  // what it lets go on must be broken everywhere
  if (all) {
    for (const auto& end : ends) {
      if (end != part->end && !end->AddReader(part->end)) return false;
    }
    AXCCL_RETURN_IF_ERROR(part->lanes->Bind(std::move(ends)));
  } else {
    part->lanes = nullptr;
  }
  return true;
}

// Enqueues a start on the pipeline's own streams.
Status CudaPipeline::Run(uint32_t stamp, bool captured) {
  const Driver& driver = Driver::Loaded();
  const Events& events = events_[captured];
  if (wants_copies()) {
    AXCCL_RETURN_IF_ERROR(copying_->AwaitBegun(stamp, stream_));
  } else {
    AXCCL_RETURN_IF_CUDA_ERROR(driver.cuStreamWaitEvent(stream_, events.reset, 0));
  }
  const bool reserved = !before_.empty();
  const uint64_t capture = captured ? capture_.load(std::memory_order_relaxed) : 0;
  AXCCL_ASSIGN_OR_RETURN(const OrderedStream own, OrderedStream::Of(*device_, stream_, capture));
  AXCCL_RETURN_IF_ERROR(TakeTurn(own));
  AXCCL_RETURN_IF_ERROR(FillZeros(stamp));
  AXCCL_RETURN_IF_ERROR(Launch(stamp, captured));
  AXCCL_RETURN_IF_ERROR(Copy(stamp));
  if (captured || !reserved) AXCCL_RETURN_IF_ERROR(rank_->orders().Launched(order_.get(), own).status());
  return device::cuda::Check(driver.cuEventRecord(events.done, stream_), "cuEventRecord");
}

// Notes the end of what was enqueued also when the driver refuses some of it, because others wait for that.
Status CudaPipeline::Copy(uint32_t stamp) {
  Status copied;
  for (const Part& part : parts_) part.end->enqueued.store(stamp, std::memory_order_release);
  for (const Part& part : parts_) {
    if (part.lanes == nullptr || !copied.ok()) continue;
    copied = part.lanes->CheckPeers(stamp);
    if (copied.ok()) copied = part.lanes->Enqueue(stamp, stream_);
  }
  for (const Part& part : parts_) {
    if (!part.end->copies()) continue;
    const Status noted = part.end->WriteEnded(stamp, stream_);
    if (noted.ok()) continue;
    part.end->enqueued.store(stamp - 1, std::memory_order_release);
    if (copied.ok()) copied = noted;
  }
  return copied;
}

Status CudaPipeline::Launch(uint32_t stamp, bool captured) {
  cuda::Launch launch;
  for (const Part& part : parts_) {
    if (part.lanes == nullptr) launch.tasks[launch.num_tasks++] = part.task;
  }
  if (launch.num_tasks == 0) return Status();
  launch.lanes = lanes_;
  launch.stamp = stamp;
  launch.in_graph = captured;
  return interpreter_->Launch(&launch, blocks_, most_bytes_, stream_);
}

Status CudaPipeline::FillZeros(uint32_t stamp) {
  if (first_zero_ == kNoZeros) return Status();
  const Driver& driver = Driver::Loaded();
  for (const Plane& plane : zeros_) AXCCL_RETURN_IF_ERROR(ClearPlane(plane, stream_));
  const size_t num = chunks_[kOut] - first_zero_;
  AXCCL_RETURN_IF_CUDA_ERROR(
      driver.cuMemsetD32Async(WordOf(kOut, static_cast<int64_t>(first_zero_)), kThere, num, stream_));
  return device::cuda::Check(
      driver.cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(shared_->OnDevice(came_ + first_zero_)), stamp, num,
                              stream_),
      "cuMemsetD32Async");
}

// The stream waits for the end of the last start. If that has not been enqueued, there is no event to wait for.
Status CudaPipeline::FollowEnd(CUstream stream, bool captured) {
  const Driver& driver = Driver::Loaded();
  const uint32_t starts = starts_.load(std::memory_order_relaxed);
  if (captured || enqueued_.load(std::memory_order_acquire) == starts)
    return device::cuda::Check(driver.cuStreamWaitEvent(stream, events_[captured].done, 0), "cuStreamWaitEvent");
  AXCCL_RETURN_IF_ERROR(copying_->AwaitEnded(starts, stream));
  return NoteUser(stream);
}

Status CudaPipeline::Finish(StreamRef ref) {
  const Scope scope(*device_);
  const auto stream = static_cast<CUstream>(ref.cuda);
  AXCCL_RETURN_IF_ERROR(CheckStream(stream));
  const std::lock_guard lock(rank_->launching());
  return FollowEnd(stream, is_captured());
}

// ---- copy engines ----

// As kernels do, it reports a wait again and again.
Status CudaPipeline::Attend() {
  const Scope scope(*device_);
  AXCCL_RETURN_IF_ERROR(CheckBroken());
  AXCCL_RETURN_IF_ERROR(Advance());
  if (copying_->ended() == starts_.load(std::memory_order_relaxed)) return Status();
  const uint32_t start = copying_->ended() + 1;  // the one that runs, or waits
  if (!copying_->has_begun(start)) return Status();
  for (const Part& part : parts_) {
    if (part.lanes == nullptr) continue;
    AXCCL_ASSIGN_OR_RETURN(CudaChannel * channel, rank_->ChannelOf(part.channel, CudaPlace::kPipeline));
    if (part.lanes->ends().empty()) {
      channel->TellWait(start - 1, part.call, cuda::Wait::kUnmet, part.call.count);
      continue;
    }
    const CopyLanes::Missing missing = part.lanes->FindMissing(start);
    if (missing.position < 0) continue;
    const bool own = missing.position == part.channel->self();
    channel->TellWait(start - 1, part.call, own ? cuda::Wait::kInput : static_cast<uint32_t>(missing.position),
                      own ? missing.chunk : part.call.count);
  }
  return Status();
}

bool CudaPipeline::IsBroken() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.end->broken(); });
}

// A member that fails breaks what others have not got yet, and may publish its failure after that.
Status CudaPipeline::CheckBroken() const {
  const uint32_t start = starts_.load(std::memory_order_relaxed);
  if (start == 0 || !IsBroken()) return Status();
  bool there = copying_->has_ended(start);
  for (size_t chunk = 0; chunk < chunks_[kOut] && there; ++chunk) there = HasCome(static_cast<int64_t>(chunk));
  for (const Part& part : parts_) {
    if (!there) AXCCL_RETURN_IF_ERROR(part.channel->members().Check(-1));
  }
  return Status();
}

// Whether nothing runs, and all words have been reset that will be.
bool CudaPipeline::IsIdle() const {
  const bool ended = std::all_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.end->idle(); });
  return ended && Driver::Loaded().cuEventQuery(events_[0].reset) != CUDA_ERROR_NOT_READY;
}

void CudaPipeline::Break() {
  const Scope scope(*device_);
  const std::lock_guard lock(mutex_);
  const uint32_t start = starts_.load(std::memory_order_acquire);
  if (start != 0 && settled_ == start) return;
  if (!device_->CheckHealth().ok()) {  // nothing runs there any more
    for (const Part& part : parts_) part.end->enqueued.store(0, std::memory_order_release);
  }
  const bool idle = IsIdle();
  for (const Part& part : parts_) {
    if (part.lanes == nullptr) continue;
    part.end->Break();
    for (const auto& end : part.lanes->ends()) end->Break();
  }
  for (size_t i = 0; i < num_words(); ++i) __atomic_store_n(initial_ + i, kFailed, __ATOMIC_RELAXED);
  for (const Part& part : parts_) part.end->LetGo(start);
  if (start != 0) (void)FailWords().ok();
  if (idle) settled_ = start;
}

// Those that were just being reset are failed by the next call. Copies from and to pinned memory alone: drivers fill
// memory by kernels, for which a kernel of the application that waits for these words may leave no room, and may wait
// where other memory of the host is copied.
Status CudaPipeline::FailWords() {
  const Driver& driver = Driver::Loaded();
  const size_t num = num_words();
  uint32_t* const words = initial_ + num;
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuMemcpyDtoHAsync(words, memory_, num * sizeof(uint32_t), relief_));
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuStreamSynchronize(relief_));
  const auto waits = [](uint32_t word) { return word == kNotYet; };
  for (uint32_t* begin = std::find_if(words, words + num, waits); begin != words + num;) {
    uint32_t* const end = std::find_if_not(begin, words + num, waits);
    const CUdeviceptr to = memory_ + static_cast<size_t>(begin - words) * sizeof(uint32_t);
    AXCCL_RETURN_IF_CUDA_ERROR(
        driver.cuMemcpyHtoDAsync(to, initial_, static_cast<size_t>(end - begin) * sizeof(uint32_t), relief_));
    begin = std::find_if(end, words + num, waits);
  }
  return Status();
}

// Streams that wait for a word must have got past it, because the words are freed next.
void CudaPipeline::WaitIdle() {
  const Driver& driver = Driver::Loaded();
  const Scope scope(*device_);
  if (starts_.load(std::memory_order_acquire) == 0) return;
  const auto enqueued = [&] { return owner_->failed() || enqueued_ == starts_; };
  service::PollUntil(-1, 0, service::Clock::time_point::max(), enqueued);
  driver.cuEventSynchronize(events_[0].done);
  if (turn_ != nullptr) driver.cuStreamSynchronize(turn_);
  std::vector<CUevent> ends;
  CUstream ready = nullptr;
  {
    const std::lock_guard lock(mutex_);  // not while it waits, because Break takes it
    if (relief_ != nullptr) driver.cuStreamSynchronize(relief_);
    for (const auto& [id, event] : users_) ends.push_back(event);
    ready = ready_;
  }
  if (ready != nullptr) driver.cuStreamSynchronize(ready);
  for (CUevent end : ends) driver.cuEventSynchronize(end);
}

Status CudaPipeline::Leave() {
  Status left;
  for (const Part& part : parts_) {
    if (left.ok()) left = part.end->Leave();
  }
  for (const Part& part : parts_) {
    if (!left.ok()) part.end->Stay();
  }
  return left;
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
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuStreamWaitEvent(stream, events().reset, 0));
  AXCCL_RETURN_IF_ERROR(device::cuda::Check(enqueue(stream, word), what));
  return is_captured() ? Status() : NoteUser(stream);
}

// From now on, the pipeline lasts until the stream has got here.
Status CudaPipeline::NoteUser(CUstream stream) {
  const Driver& driver = Driver::Loaded();
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
    AXCCL_RETURN_IF_CUDA_ERROR(driver.cuStreamWaitEvent(ready_, events_[0].reset, 0));
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
