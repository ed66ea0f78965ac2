#include "src/exec/host/host_pipeline.h"

#include <algorithm>
#include <array>
#include <utility>

#include "src/base/recycled.h"
#include "src/device/host/current.h"
#include "src/device/host/scheduler.h"
#include "src/exec/host/local_copy.h"
#include "src/exec/host/submit.h"

namespace axccl::exec {

using device::host::Device;
using device::host::Item;
using device::host::Poll;
using device::host::Queue;
using device::host::Scheduler;
using device::host::Stream;
using device::host::TimelinePtr;

namespace {

// Bytes that one Progress() moves. A start moves as many before it returns.
constexpr int64_t kBytesOfTurn = 2 << 20;
// A permute has a message to one rank and one from another.
constexpr size_t kMostRuns = 2;
// Looks for peers that start at the same time, before a start returns: each would otherwise ring the other. A look at a
// counter costs much less than a turn.
constexpr int kLooksOfStart = 64, kTurnsOfStart = 16;

}  // namespace

// Work that keeps the pipeline and its communicator alive.
class PipelineItem : public Item, public device::host::Work {
 public:
  PipelineItem(HostPipeline* pipeline, uint64_t start)
      : owner_(pipeline->owner_->shared_from_this()), pipeline_(pipeline->shared_from_this()), start_(start) {
    work = std::shared_ptr<device::host::Work>(std::shared_ptr<void>(), this);  // the item lives as long as it
    places.reserve(2);
  }

 protected:
  const std::shared_ptr<ChannelOwner> owner_;
  const std::shared_ptr<HostPipeline> pipeline_;  // must be destroyed before its owner
  const uint64_t start_;
};

// The stream has come to the start.
class HostPipeline::Reset final : public PipelineItem, public Recycled<Reset> {
 public:
  using PipelineItem::PipelineItem;
  Poll Progress() override {
    if (pipeline_->ended_.load(std::memory_order_acquire) + 1 < start_) return Poll::kBlocked;
    pipeline_->ResetWords(start_);
    return Poll::kDone;
  }
};

class HostPipeline::Run final : public PipelineItem, public Recycled<Run> {
 public:
  using PipelineItem::PipelineItem;
  Poll Progress() override {
    const Poll poll = pipeline_->Progress(start_);
    if (poll == Poll::kDone) pipeline_->End(start_);
    return poll;
  }
  void Arm(int doorbell) override { pipeline_->Arm(doorbell); }
  device::host::Awaited awaited() const override { return pipeline_->awaited(); }
};

// The stream has come to the finish, and the run has ended.
class HostPipeline::Ending final : public PipelineItem, public Recycled<Ending> {
 public:
  Ending(HostPipeline* pipeline, uint64_t start) : PipelineItem(pipeline, start) {
    behind = {pipeline->timeline_, pipeline->timeline_->issued()};
  }
  Poll Progress() override { return Poll::kDone; }
  Status result() const override { return pipeline_->failed_.load() ? pipeline_->Failure() : Status(); }
};

class HostPipeline::ChunkWait final : public PipelineItem, public Recycled<ChunkWait> {
 public:
  ChunkWait(HostPipeline* pipeline, uint64_t start, const Word* word) : PipelineItem(pipeline, start), word_(word) {}
  Poll Progress() override { return pipeline_->Said(*word_, start_) ? Poll::kDone : Poll::kBlocked; }
  Status result() const override { return pipeline_->ResultOf(*word_); }

 private:
  const Word* const word_;
};

class HostPipeline::ChunkReady final : public PipelineItem, public Recycled<ChunkReady> {
 public:
  ChunkReady(HostPipeline* pipeline, uint64_t start, int64_t chunk) : PipelineItem(pipeline, start), chunk_(chunk) {}
  Poll Progress() override {
    if (pipeline_->reset_.load(std::memory_order_acquire) < start_) return Poll::kBlocked;
    pipeline_->Ready(chunk_);
    return Poll::kDone;
  }

 private:
  const int64_t chunk_;
};

Result<std::shared_ptr<Pipeline>> HostPipeline::Make(Device* device, const Channel& on,
                                                     std::vector<PipelinePart> parts) {
  std::shared_ptr<HostPipeline> pipeline(new HostPipeline(device, on));
  AXCCL_RETURN_IF_ERROR(pipeline->MakeRuns(std::move(parts)));
  AXCCL_RETURN_IF_ERROR(Scheduler::Process().StartProgress());
  // A thread that starts again may do so before another one has deleted what the last start had.
  for (int i = 0; i < 2; ++i) {
    Run::Reserve();
    Reset::Reserve();
    Ending::Reserve();
  }
  return std::shared_ptr<Pipeline>(std::move(pipeline));
}

HostPipeline::~HostPipeline() {
  if (exposed_.load()) Scheduler::Process().LookOften(-1);
}

Status HostPipeline::MakeRuns(std::vector<PipelinePart> parts) {
  const auto chunks_of = [](const PipelinePart& part, Side side) -> size_t {
    if (part.channel == nullptr) return side == kOut ? part.slicing.slices : 0;
    const plan::Contract contract{part.call.kind, part.channel->size(), part.call.root};
    const int self = part.channel->self();
    const int blocks = side == kIn ? plan::InputBlocks(contract, self) : plan::OutputBlocks(contract, self);
    return static_cast<size_t>(blocks) * part.slicing.slices;
  };
  for (const PipelinePart& part : parts) {
    for (const Side side : {kIn, kOut}) chunks_[side] += chunks_of(part, side);
  }
  words_ = std::make_unique<Word[]>(chunks_[kIn] + chunks_[kOut]);
  size_t at[2] = {0, chunks_[kIn]};
  for (const PipelinePart& part : parts) {
    if (part.channel == nullptr) {
      zeros_.push_back(part.call);
      zero_words_ = &words_[at[kOut]];
      continue;
    }
    AXCCL_ASSIGN_OR_RETURN(std::unique_ptr<SlicedRun> run,
                           SlicedRun::Make(part, {&words_[at[kIn]], &words_[at[kOut]]}));
    runs_.push_back(std::move(run));
    for (const Side side : {kIn, kOut}) at[side] += chunks_of(part, side);
  }
  run_ended_.resize(runs_.size());
  standstill_.MakeRoom(1);  // all runs are in one order
  ready_early_.reserve(chunks_[kIn]);
  return Status();
}

// ---- starts ----

bool HostPipeline::IssueIdle(Stream* stream, uint64_t* order, uint64_t* own) {
  if (stream->device() != device_->ordinal()) return false;
  const std::lock_guard lock(device_->submission());
  if (!order_->Idle() || !timeline_->Idle() || !device::host::Through(device_, stream)) return false;
  *order = order_->Issue();
  *own = timeline_->Issue();
  return true;
}

bool HostPipeline::RunStart(Run* run) {
  Poll poll = run->Progress();
  int looks = device::host::SpinLooks() > kLooksOfStart ? kLooksOfStart : 0;
  for (int turns = kTurnsOfStart; poll != Poll::kDone && turns > 0 && looks > 0; --turns) {
    const device::host::Awaited awaited = run->awaited();
    do {
      device::host::CpuRelax();
    } while (--looks > 0 && awaited.counter != nullptr && !awaited.Reached());
    poll = run->Progress();
  }
  return poll == Poll::kDone;
}

bool HostPipeline::StartAtOnce(Stream* stream, std::unique_ptr<Run>* run) {
  Queue* const queue = device_->queue();
  // What may throw is asked before the queue is entered.
  if (device::host::OtherNullStreamsHold(device_, stream) || !queue->TryEnterIdle()) return false;
  uint64_t order_ticket = 0, own_ticket = 0;
  if (!IssueIdle(stream, &order_ticket, &own_ticket)) return queue->Leave(), false;
  ResetWords(starts_.load(std::memory_order_relaxed));
  if (RunStart(run->get())) {
    order_->Done(order_ticket);
    timeline_->Done(own_ticket);
    queue->LeaveAndNotify(order_.get(), timeline_.get());
    return true;
  }
  (*run)->places.push_back({order_, order_ticket});
  (*run)->places.push_back({timeline_, own_ticket});
  queue->AddStarted(std::move(*run));
  queue->Leave();
  return true;
}

// Whether the stream has come to the start. A program whose stream is idle may store to words of the input as soon as
// the start returns, even if another thread drives the queue just now, or another call is before this one on the
// channel.
bool HostPipeline::IsAtStart(Stream* stream, uint64_t start) const {
  if (ended_.load(std::memory_order_acquire) + 1 < start || device::host::OtherNullStreamsHold(device_, stream))
    return false;
  return device::host::Through(Device::Get(stream->device()), stream);
}

Status HostPipeline::Start(StreamRef ref) {
  Stream* const stream = device_->Effective(ref.host);
  const uint64_t start = starts_.load(std::memory_order_relaxed) + 1;
  auto run = std::make_unique<Run>(this, start);
  starts_.store(start, std::memory_order_release);
  owner_->CountOperation();
  Scheduler::Process().Attend(1);
  const Status enqueued = CatchAll("a start of a pipeline", [&] {
    if (StartAtOnce(stream, &run)) return Status();
    if (IsAtStart(stream, start)) {
      ResetWords(start);
    } else {
      SubmitTo(stream, std::make_unique<Reset>(this, start), device_, {});
    }
    const std::array<Device*, 1> devices{device_};
    const std::array<const TimelinePtr*, 2> orders{&order_, &timeline_};
    Submit(std::move(run), device_->queue(), devices, orders, {});
    return Status();
  });
  if (!enqueued.ok()) {
    owner_->Fail(enqueued);
    End(start);
  } else if (ended_.load(std::memory_order_acquire) < start) {
    Scheduler::Process().LeaveToAttendant(device_->queue());
  }
  return enqueued;
}

// The start may have failed before the stream got to it. The run has begun then, and perhaps not ended.
void HostPipeline::ResetWords(uint64_t start) {
  const bool failed = begun_ >= start || ended_.load(std::memory_order_acquire) >= start;
  const uint32_t value = failed ? kFailed : kNotYet;
  for (size_t i = 0; i < chunks_[kIn] + chunks_[kOut]; ++i) words_[i].store(value, std::memory_order_relaxed);
  for (const auto& run : runs_) run->ForgetReady();
  const std::lock_guard lock(ready_lock_);
  for (const uint32_t chunk : ready_early_) {
    if (value != kNotYet) continue;
    words_[chunk].store(kThere, std::memory_order_relaxed);
    CountReady(words_[chunk]);
  }
  ready_early_.clear();
  reset_.store(start, std::memory_order_release);
}

Poll HostPipeline::Progress(uint64_t start) {
  const int64_t budget = std::exchange(only_looks_, false) ? 0 : kBytesOfTurn;
  if (reset_.load(std::memory_order_acquire) < start && !owner_->failed()) return Poll::kBlocked;
  if (std::exchange(begun_, start) != start) {
    for (const auto& run : runs_) run->Begin();
    std::fill(run_ended_.begin(), run_ended_.end(), false);
    if (reset_.load(std::memory_order_acquire) < start || owner_->failed() || Differs()) {
      NoteFailure(owner_->Failure());  // and the outputs are not this pipeline's, or not yet
    } else {
      FillZeros();
    }
  }
  bool done = true, again = false;
  for (size_t i = 0; i < runs_.size(); ++i) {
    if (run_ended_[i]) continue;
    const Poll poll = runs_[i]->Progress(budget);
    done &= run_ended_[i] = poll == Poll::kDone;
    again |= poll == Poll::kAgain;
    if (poll == Poll::kDone && !runs_[i]->status().ok()) NoteFailure(runs_[i]->status());
  }
  if (done) {
    // Those of runs that ended well before another one failed, too.
    if (failed_.load(std::memory_order_relaxed)) Fail(words_.get(), chunks_[kIn] + chunks_[kOut]);
    return Poll::kDone;
  }
  return again || StandsStill() ? Poll::kAgain : Poll::kBlocked;
}

// Whether ranks have created different pipelines; the communicator has failed then.
bool HostPipeline::Differs() {
  if (owner_->failed()) return false;
  Status differs = CatchAll("comparing pipelines", comparison_);
  if (differs.ok()) return false;
  owner_->Fail(std::move(differs));
  return true;
}

// Whether nothing moves any more because ranks wait for each other; the communicator has failed then.
bool HostPipeline::StandsStill() {
  bool asks = false;
  for (size_t i = 0; i < runs_.size(); ++i) asks |= !run_ended_[i] && runs_[i]->TakeStandstill();
  if (!asks) return false;
  if (Differs()) return true;
  bool stands_still = false;
  // If there is no memory for a look, it is repeated later.
  (void)CatchAll("looking for ranks that wait for each other", [&] {
    std::array<Standstill::Calls, kMostRuns> left;
    size_t count = 0;
    for (size_t i = 0; i < runs_.size(); ++i) {
      SlicedRun& run = *runs_[i];
      const uint64_t next = run.channel()->log().next();
      if (!run_ended_[i]) left[count++] = {run.channel(), &run.call(), next - 1, next, run.text()};
    }
    return stands_still = standstill_.Check({left.data(), count}), Status();
  });
  return stands_still;
}

void HostPipeline::CountReady(const Word& word) {
  for (const auto& run : runs_) {
    if (run->HasInput(&word)) run->CountReady(run->InputIndex(&word));
  }
}

// The first one counts.
void HostPipeline::NoteFailure(Status status) {
  if (failed_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(failure_mutex_);
  failure_ = std::move(status);
  failed_.store(true, std::memory_order_release);
}

void HostPipeline::FillZeros() {
  for (const Call& call : zeros_) CopyLocally(call);
  for (Word* word = zero_words_; word != nullptr && word != &words_[chunks_[kIn]] + chunks_[kOut]; ++word)
    word->store(kThere, std::memory_order_release);
}

void HostPipeline::Arm(int doorbell) {
  only_looks_ = true;
  for (size_t i = 0; i < runs_.size(); ++i) {
    if (!run_ended_[i]) runs_[i]->Arm(doorbell);
  }
}

void HostPipeline::End(uint64_t start) {
  standstill_.Leave();
  ended_.store(start, std::memory_order_release);
  Scheduler::Process().Attend(-1);
}

Status HostPipeline::Finish(StreamRef ref) {
  Stream* const stream = device_->Effective(ref.host);
  const uint64_t start = starts_.load(std::memory_order_relaxed);
  const bool ended = ended_.load(std::memory_order_acquire) >= start && !failed_.load(std::memory_order_acquire);
  if (ended && device::host::Through(Device::Get(stream->device()), stream)) return Status();
  SubmitTo(stream, std::make_unique<Ending>(this, start), device_, {});
  return Status();
}

void HostPipeline::WaitIdle() {
  Scheduler::Process().Wait(
      device_->queue(), [this] { return ended_.load(std::memory_order_acquire) >= starts_.load(); },
      [] { return false; });
}

// ---- chunks ----

Status HostPipeline::Failure() const {
  if (failed_.load(std::memory_order_acquire)) {
    const std::lock_guard lock(failure_mutex_);
    return failure_;
  }
  return owner_->Failure();
}

Status HostPipeline::Wait(int64_t chunk) {
  const Word& word = words_[chunks_[kIn] + static_cast<size_t>(chunk)];
  const uint64_t start = starts_.load(std::memory_order_acquire);
  if (!Said(word, start)) {
    const bool came = Scheduler::Process().Wait(
        device_->queue(), [&] { return Said(word, start); }, [this] { return owner_->failed(); });
    if (!came) return Failure();
  }
  return ResultOf(word);
}

Result<bool> HostPipeline::Test(int64_t chunk) {
  const Word& word = words_[chunks_[kIn] + static_cast<size_t>(chunk)];
  const uint64_t start = starts_.load(std::memory_order_acquire);
  if (!Said(word, start) && device_->queue()->pending()) device_->queue()->Drive();
  if (!Said(word, start)) return false;
  AXCCL_RETURN_IF_ERROR(ResultOf(word));
  return true;
}

Status HostPipeline::StreamWait(int64_t chunk, StreamRef ref) {
  Stream* const stream = device_->Effective(ref.host);
  const Word& word = words_[chunks_[kIn] + static_cast<size_t>(chunk)];
  const uint64_t start = starts_.load(std::memory_order_relaxed);
  const bool there = Said(word, start) && word.load(std::memory_order_acquire) == kThere;
  if (!there) SubmitTo(stream, std::make_unique<ChunkWait>(this, start, &word), device_, {});
  return Status();
}

void HostPipeline::Ready(int64_t chunk) {
  {
    const std::lock_guard lock(ready_lock_);
    if (reset_.load(std::memory_order_relaxed) < starts_.load(std::memory_order_relaxed)) {
      ready_early_.push_back(static_cast<uint32_t>(chunk));
      return;
    }
  }
  Word& word = words_[static_cast<size_t>(chunk)];
  uint32_t not_yet = kNotYet;
  if (word.compare_exchange_strong(not_yet, kThere, std::memory_order_acq_rel)) CountReady(word);
  Scheduler::Notify();
  Scheduler::Process().WakeAttendant();
}

Status HostPipeline::StreamReady(int64_t chunk, StreamRef ref) {
  Stream* const stream = device_->Effective(ref.host);
  const uint64_t start = starts_.load(std::memory_order_relaxed);
  if (reset_.load(std::memory_order_acquire) >= start && device::host::Through(Device::Get(stream->device()), stream)) {
    Ready(chunk);
  } else {
    SubmitTo(stream, std::make_unique<ChunkReady>(this, start, chunk), device_, {});
  }
  return Status();
}

Pipeline::Word* HostPipeline::Expose(Side side) {
  if (side == kIn && !exposed_.exchange(true)) Scheduler::Process().LookOften(1);
  return &words_[side == kIn ? 0 : chunks_[kIn]];
}

size_t HostPipeline::scratch_bytes() const {
  size_t bytes = 0;
  for (const auto& run : runs_) bytes += run->scratch_bytes();
  return bytes;
}

size_t HostPipeline::memory_bytes() const {
  const size_t words = (chunks_[kIn] + chunks_[kOut]) * sizeof(Word), counted = chunks_[kIn];
  return sizeof(*this) + words + counted + runs_.size() * sizeof(SlicedRun);
}

}  // namespace axccl::exec
