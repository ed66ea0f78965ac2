#include "src/exec/cuda/copy_end.h"

#include <algorithm>
#include <map>
#include <utility>

#include "src/base/service_fd.h"
#include "src/exec/prepared/program.h"

namespace axccl::exec {

using device::cuda::Check;
using device::cuda::Driver;

namespace {

// A number of a start that no start will have soon.
constexpr uint32_t kFar = 1u << 30;

struct GroupTable {
  std::mutex mutex;  // also guards the groups
  std::map<CopyGroup::Key, std::weak_ptr<CopyGroup>> groups;
};
GroupTable& Groups() {
  static auto* const table = new GroupTable;
  return *table;
}

std::vector<CopyEnd::Signal> SignalsOf(const Program& program) {
  std::vector<CopyEnd::Signal> signals;
  for (const std::vector<Step>& lane : program.lanes) {
    for (const Step& step : lane) {
      if (step.kind == plan::OpKind::kWait) signals.push_back({step.peer, step.from_lane, step.endpoint, step.value});
    }
  }
  std::sort(signals.begin(), signals.end());
  signals.erase(std::unique(signals.begin(), signals.end()), signals.end());
  return signals;
}

}  // namespace

CopyEnd::CopyEnd(const PipelinePart& part, bool copies, uint32_t signature, const StartStamps& stamps,
                 const uint32_t* begun)
    : copies_(copies),
      signature_(signature),
      call_(part.call),
      rank_(part.channel->own().rank),
      stamps_(stamps),
      begun_(begun) {
  if (copies_) signals_ = SignalsOf(*part.program);
}

CopyEnd::~CopyEnd() {
  if (words_ != nullptr) device_->ReturnHost(words_);
}

Result<std::shared_ptr<CopyEnd>> CopyEnd::Make(const device::cuda::Device& device, const PipelinePart& part,
                                               bool copies, uint32_t signature, const StartStamps& stamps,
                                               const uint32_t* begun) {
  std::shared_ptr<CopyEnd> end(new CopyEnd(part, copies, signature, stamps, begun));
  if (!copies) return end;
  AXCCL_ASSIGN_OR_RETURN(void* const words, device.TakeHost((kFlags + end->signals_.size()) * sizeof(uint32_t)));
  end->device_ = &device;
  end->words_ = static_cast<uint32_t*>(words);
  end->words_[kTruth] = Pipeline::kThere;
  return end;
}

Status CopyEnd::WriteWord(const uint32_t* word, uint32_t value, CUstream stream) {
  return Check(Driver::Loaded().cuStreamWriteValue32(stream, reinterpret_cast<CUdeviceptr>(word), value,
                                                     CU_STREAM_WRITE_VALUE_DEFAULT),
               "cuStreamWriteValue32");
}

Status CopyEnd::AwaitWord(const uint32_t* word, uint32_t value, CUstream stream) {
  return Check(Driver::Loaded().cuStreamWaitValue32(stream, reinterpret_cast<CUdeviceptr>(word), value,
                                                    CU_STREAM_WAIT_VALUE_GEQ),
               "cuStreamWaitValue32");
}

bool CopyEnd::Reached(const uint32_t* word, uint32_t value) {
  return static_cast<int32_t>(__atomic_load_n(word, __ATOMIC_ACQUIRE) - value) >= 0;
}

Status CopyEnd::WriteEnded(uint32_t start, CUstream stream) {
  AXCCL_RETURN_IF_ERROR(WriteWord(words_ + kEnded, start, stream));
  return WriteWord(words_ + kDone, start, stream);
}

uint32_t* CopyEnd::FlagOf(const Signal& signal) {
  const auto found = std::lower_bound(signals_.begin(), signals_.end(), signal);
  if (found == signals_.end() || *found != signal) return nullptr;
  return words_ + kFlags + (found - signals_.begin());
}

void CopyEnd::Break() {
  const std::lock_guard lock(mutex_);
  if (broken() || !copies_) return;
  stamps_.Break();
  __atomic_store_n(words_ + kTruth, Pipeline::kFailed, __ATOMIC_RELEASE);
  broken_.store(true, std::memory_order_release);
}

// What comes after the end was broken is not seen here: whoever stores that has been let go later.
uint32_t CopyEnd::CameIn(size_t chunk) const {
  const uint32_t came = __atomic_load_n(stamps_.came() + chunk, __ATOMIC_ACQUIRE);
  return broken() ? stamps_.CameBefore(chunk) : came;
}

void CopyEnd::LetGo(uint32_t start) {
  if (!copies_) return;
  const auto set = [&](uint32_t* word) { __atomic_store_n(word, start + kFar, __ATOMIC_RELEASE); };
  set(stamps_.begun());
  if (idle() && enqueued.load(std::memory_order_acquire) != start) set(words_ + kEnded);
  for (size_t i = 0; i < signals_.size(); ++i) set(words_ + kFlags + i);
}

bool CopyEnd::idle() const { return !copies_ || has_ended(enqueued.load(std::memory_order_acquire)); }

bool CopyEnd::AddReader(const std::shared_ptr<CopyEnd>& reader) {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kGone || (state_ == State::kHere && broken())) return false;
  const auto same = [&](const std::weak_ptr<CopyEnd>& other) { return other.lock() == reader; };
  if (std::none_of(readers_.begin(), readers_.end(), same)) readers_.push_back(reader);
  return true;
}

bool CopyEnd::Admits(uint32_t start) const {
  const std::lock_guard lock(mutex_);
  return state_ == State::kHere || (state_ == State::kLeft && has_ended(start));
}

Status CopyEnd::CheckReaders() const {
  for (const std::weak_ptr<CopyEnd>& weak : readers_) {
    const std::shared_ptr<CopyEnd> reader = weak.lock();
    if (reader == nullptr) continue;
    const uint32_t started = reader->enqueued.load(std::memory_order_acquire);
    if (has_ended(started)) continue;
    return MakeStatus(Code::kInvalidUsage,
                      "rank %d is in start %u of the pipeline (%s), and rank %d has not started it so often; all ranks "
                      "start a pipeline equally often before they destroy it",
                      reader->rank(), started, DescribeCall(call_).c_str(), rank_);
  }
  return Status();
}

Status CopyEnd::Leave() {
  const std::lock_guard lock(mutex_);
  if (!copies_ || broken() || state_ != State::kHere) return Status();
  AXCCL_RETURN_IF_ERROR(CheckReaders());
  state_ = State::kLeft;
  return Status();
}

void CopyEnd::Stay() {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kLeft) state_ = State::kHere;
}

void CopyEnd::Close() {
  if (!copies_) return;
  std::vector<std::weak_ptr<CopyEnd>> readers;
  (void)Leave().ok();  // nobody has called it if the communicator went first
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kHere) state_ = State::kGone;
    if (state_ == State::kGone) readers = readers_;
  }
  for (const std::weak_ptr<CopyEnd>& weak : readers) {
    const std::shared_ptr<CopyEnd> reader = weak.lock();
    const auto idle = [&] { return reader == nullptr || reader->idle(); };
    service::PollUntil(-1, 0, service::Clock::time_point::max(), idle);
  }
  Break();
}

// ---- all ranks of a part ----

std::shared_ptr<CopyGroup> CopyGroup::Join(const Key& key, size_t ranks, size_t position,
                                           std::shared_ptr<CopyEnd> end) {
  std::shared_ptr<CopyGroup> group;  // destroyed without the lock
  const std::lock_guard lock(Groups().mutex);
  std::weak_ptr<CopyGroup>& known = Groups().groups[key];
  group = known.lock();
  if (group == nullptr) {
    group.reset(new CopyGroup(key));
    group->ends_.resize(ranks);
    known = group;
  }
  group->ends_[position] = std::move(end);
  return group;
}

CopyGroup::~CopyGroup() {
  const std::lock_guard lock(Groups().mutex);
  const auto found = Groups().groups.find(key_);
  if (found != Groups().groups.end() && found->second.expired()) Groups().groups.erase(found);
}

std::vector<std::shared_ptr<CopyEnd>> CopyGroup::Ends() const {
  const std::lock_guard lock(Groups().mutex);
  const bool all = std::find(ends_.begin(), ends_.end(), nullptr) == ends_.end();
  return all ? ends_ : std::vector<std::shared_ptr<CopyEnd>>();
}

}  // namespace axccl::exec
