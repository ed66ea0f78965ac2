#include "src/comm/comm.h"

#include <algorithm>

#include "src/base/detached_thread.h"
#include "src/base/log.h"

namespace axccl::comm {
namespace {

// Region handles are small odd numbers, never addresses.
void* RegionHandle(uint64_t id) { return reinterpret_cast<void*>(id << 1 | 1); }
uint64_t RegionId(const void* handle) { return reinterpret_cast<uint64_t>(handle) >> 1; }

}  // namespace

uint32_t Comm::NextSalt() {
  static std::atomic<uint32_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed) & 0x3ffffu;
}

void Comm::Finish(Result<std::shared_ptr<Communicator>> result) {
  std::lock_guard lock(mutex_);
  if (result.ok()) {
    core_ = std::move(result).value();
  } else {
    error_ = result.status();
    if (background_) AXCCL_WARN("%.*s", static_cast<int>(error_.message().size()), error_.message().data());
  }
  phase_.store(core_ != nullptr ? Phase::kReady : Phase::kFailed, std::memory_order_release);
  background_ = false;
  changed_.notify_all();
}

Status Comm::Create(const Job& job) {
  Finish(job(&abort_));
  std::lock_guard lock(mutex_);
  return error_;
}

void Comm::CreateInBackground(Job job) {
  background_ = true;
  const Status started = StartDetached("creating a communicator", [self = shared_from_this(), job = std::move(job)] {
    self->Finish(job(&self->abort_));
  });
  if (!started.ok()) Finish(started);
}

Result<Communicator*> Comm::Ready(const char* call) const {
  switch (phase()) {
    case Phase::kInitialising:
      return MakeStatus(Code::kInvalidUsage, "%s: the communicator is still being initialised; poll ncclCommGetAsyncError "
                        "until it no longer returns ncclInProgress", call);
    case Phase::kFailed:
      return MakeStatus(Code::kInvalidUsage, "%s: the communicator's initialisation failed; abort it", call);
    case Phase::kFinalizing:
    case Phase::kFinalized:
      return MakeStatus(Code::kInvalidUsage, "%s: the communicator has been finalized; destroy it", call);
    case Phase::kReady: break;
  }
  if (revoked()) return MakeStatus(Code::kInvalidUsage, "%s: the communicator has been revoked; split, shrink or destroy it", call);
  if (core_->failed()) {
    const Status failure = core_->Failure();
    return MakeStatus(failure.code(), "%s: the communicator has failed: %.*s; abort it", call,
                      static_cast<int>(failure.message().size()), failure.message().data());
  }
  return core_.get();
}

Status Comm::AsyncError() const {
  switch (phase()) {
    case Phase::kInitialising: return MakeStatus(Code::kInProgress, "initialisation in progress");
    case Phase::kFinalizing: return MakeStatus(Code::kInProgress, "finalization in progress");
    case Phase::kFailed: {
      std::lock_guard lock(mutex_);
      return error_;
    }
    case Phase::kReady:
    case Phase::kFinalized: break;
  }
  return core_->AsyncError();
}

Status Comm::StartFinalizing() {
  Phase ready = Phase::kReady;
  if (!phase_.compare_exchange_strong(ready, Phase::kFinalizing, std::memory_order_acq_rel)) {
    if (ready == Phase::kReady || ready == Phase::kInitialising) return Ready("ncclCommFinalize").status();
    return MakeStatus(Code::kInvalidArgument, "ncclCommFinalize: argument comm has been finalized already; destroy it");
  }
  return Status();
}

Status Comm::FinishFinalizing() {
  core_->WaitIdle(&abort_);
  phase_.store(Phase::kFinalized, std::memory_order_release);
  return core_->failed() ? core_->Failure() : Status();
}

Status Comm::Finalize() {
  AXCCL_RETURN_IF_ERROR(StartFinalizing());
  return FinishFinalizing();
}

// The phase changes before this returns: whoever asks from now on is told that finalization is in progress.
Status Comm::FinalizeInBackground() {
  AXCCL_RETURN_IF_ERROR(StartFinalizing());
  {
    std::lock_guard lock(mutex_);
    background_ = true;
  }
  const Status started = StartDetached("ncclCommFinalize", [self = shared_from_this()] {
    (void)self->FinishFinalizing().ok();
    std::lock_guard lock(self->mutex_);
    self->background_ = false;
    self->changed_.notify_all();
  });
  if (started.ok()) return Status(Code::kInProgress, "finalization in progress");
  std::lock_guard lock(mutex_);
  background_ = false;
  phase_.store(Phase::kReady, std::memory_order_release);
  return started;
}

// Ends: creation and finalization give up soon after abort_ is set, or are done.
void Comm::WaitBackground() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !background_; });
}

void Comm::Close() {
  WaitBackground();
  if (core_ != nullptr && !core_->failed()) core_->WaitIdle(&abort_);
}

void Comm::Abort() {
  abort_.store(true, std::memory_order_seq_cst);
  if (phase() != Phase::kInitialising && core_ != nullptr) core_->Interrupt();
  device::host::Scheduler::Process().Notify();
  WaitBackground();
  if (core_ != nullptr) core_->Abort(MakeStatus(Code::kInvalidUsage, "the communicator was aborted"));
}

Status Comm::Revoke() {
  if (revoked_.exchange(true, std::memory_order_acq_rel))
    return MakeStatus(Code::kInvalidArgument, "ncclCommRevoke: argument comm has been revoked already");
  return Status();
}

int Comm::AddReduction(Reduction reduction) {
  std::lock_guard lock(mutex_);
  const auto place = std::find_if(reductions_.begin(), reductions_.end(), [](const Reduction& r) { return !r.live; });
  const auto index = static_cast<size_t>(place - reductions_.begin());
  if (index == kMaxReductions) return -1;
  if (place == reductions_.end()) reductions_.emplace_back();
  if (reduction.callback != nullptr) reduction.callback->number = ++callbacks_;
  reductions_[index] = std::move(reduction);
  reductions_[index].live = true;
  return static_cast<int>(index);
}

Status Comm::RemoveReduction(int index) {
  std::lock_guard lock(mutex_);
  if (index < 0 || static_cast<size_t>(index) >= reductions_.size() || !reductions_[static_cast<size_t>(index)].live)
    return MakeStatus(Code::kInvalidArgument,
                      "ncclRedOpDestroy: argument op is not a live operator of this communicator (built in, destroyed, or made "
                      "on another)");
  reductions_[static_cast<size_t>(index)] = Reduction();
  return Status();
}

bool Comm::FindReduction(int index, Reduction* reduction) const {
  std::lock_guard lock(mutex_);
  if (index < 0 || static_cast<size_t>(index) >= reductions_.size()) return false;
  *reduction = reductions_[static_cast<size_t>(index)];
  return reduction->live;
}

void* Comm::AddRegion(void* base, size_t bytes, bool window) {
  std::lock_guard lock(mutex_);
  regions_[next_region_] = Region{base, bytes, window};
  return RegionHandle(next_region_++);
}

Status Comm::RemoveRegion(const void* handle, bool window) {
  std::unique_lock lock(mutex_);
  const auto it = regions_.find(RegionId(handle));
  if (it == regions_.end() || RegionHandle(it->first) != handle || it->second.window != window)
    return MakeStatus(Code::kInvalidArgument, "%s: argument %s is not a live %s of this communicator",
                      window ? "ncclCommWindowDeregister" : "ncclCommDeregister", window ? "win" : "handle",
                      window ? "window" : "registration");
  const void* const base = it->second.base;
  regions_.erase(it);
  const bool again = std::any_of(regions_.begin(), regions_.end(), [&](const auto& r) { return r.second.base == base; });
  lock.unlock();
  // Applications deregister what they free next.
  const bool created = phase() != Phase::kInitialising && core_ != nullptr;
  if (created && core_->gpu() != nullptr && !again) core_->gpu()->LetGoOf(base);
  return Status();
}

bool Comm::FindWindow(const void* handle, void** base) const {
  std::lock_guard lock(mutex_);
  const auto it = regions_.find(RegionId(handle));
  if (it == regions_.end() || RegionHandle(it->first) != handle || !it->second.window) return false;
  *base = it->second.base;
  return true;
}

}  // namespace axccl::comm
