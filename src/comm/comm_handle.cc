#include "src/comm/comm_handle.h"

#include <algorithm>
#include <utility>

#include "src/base/detached_thread.h"
#include "src/base/log.h"
#include "src/comm/window.h"
#include "src/device/host/scheduler.h"

namespace axccl::comm {
namespace {

// Handles of regions are small odd numbers, never addresses, except for windows that kernels use. The process uses each
// once, so that no communicator takes another one's handle for its own.
void* NewRegionHandle() {
  static std::atomic<uint64_t> next{1};
  return reinterpret_cast<void*>(next.fetch_add(1, std::memory_order_relaxed) << 1 | 1);
}

}  // namespace

uint32_t CommHandle::NextSalt() {
  static std::atomic<uint32_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed) & 0x3ffffu;
}

Status CommHandle::Finish(const char* call, Result<std::shared_ptr<Communicator>> result) {
  std::shared_ptr<Communicator> unwanted;
  const auto owner = owner_.lock();
  Status status;
  {
    std::lock_guard lock(mutex_);
    const bool given_up = abort_.load(std::memory_order_relaxed);
    if (result.ok() && !given_up) {
      core_ = std::move(result).value();
    } else if (result.ok()) {
      unwanted = std::move(result).value();
      error_ = MakeStatus(Code::kInvalidUsage, "%s: the communicator was aborted or destroyed while it was being made",
                          call);
    } else {
      error_ = Prefixed(call, result.status());
      // To the other ranks it is the failure of a peer.
      if (given_up) error_ = Status(Code::kInvalidUsage, std::string(error_.message()));
    }
    status = error_;
    if (owner != nullptr && !status.ok() && !given_up) {
      std::lock_guard owners(owner->mutex_);
      owner->child_error_ = status;
      owner->failed_child_ = this;
      owner->has_child_error_.store(true, std::memory_order_release);
    }
    phase_.store(core_ != nullptr ? Phase::kReady : Phase::kFailed, std::memory_order_release);
  }
  if (unwanted != nullptr) unwanted->Abort(status);
  unwanted = nullptr;
  if (owner != nullptr) owner->children_under_way_.fetch_sub(1, std::memory_order_acq_rel);
  EndWork();
  return status;
}

void CommHandle::BeginWork() {
  std::lock_guard lock(mutex_);
  ++busy_;
}

void CommHandle::EndWork() {
  std::lock_guard lock(mutex_);
  --busy_;
  changed_.notify_all();
}

Status CommHandle::Create(const char* call, const Job& job) {
  BeginWork();
  return Finish(call, CatchAll("making a communicator", [&] { return job(&abort_); }));
}

Status CommHandle::CreateInBackground(const char* call, Job job) {
  BeginWork();
  const auto owner = owner_.lock();
  if (owner != nullptr) {
    owner->has_child_error_.store(false, std::memory_order_release);
    owner->children_under_way_.fetch_add(1, std::memory_order_acq_rel);
  }
  constexpr const char* kWhat = "making a communicator in the background";
  auto run = [self = shared_from_this(), call, job = std::move(job)] {
    const Status status = self->Finish(call, CatchAll(kWhat, [&] { return job(&self->abort_); }));
    if (!status.ok()) AXCCL_WARN("%s", status.message().data());
  };
  const Status started = StartDetached(kWhat, std::move(run));
  if (started.ok()) return MakeStatus(Code::kInProgress, "creation in progress");
  const Status status = Finish(call, started);
  if (owner != nullptr) owner->ForgetFailureOf(this);  // the caller gets it
  return status;
}

// The phase of a child is what both states follow, so neither ends before the other.
bool CommHandle::MakesChild() const {
  if (children_under_way_.load(std::memory_order_acquire) == 0) return false;
  std::lock_guard lock(mutex_);
  return std::any_of(children_.begin(), children_.end(), [](const std::weak_ptr<CommHandle>& child) {
    const auto comm = child.lock();
    return comm != nullptr && !comm->owner_.expired() && comm->phase() == Phase::kInitialising;
  });
}

void CommHandle::ForgetFailureOf(const CommHandle* child) {
  std::lock_guard lock(mutex_);
  if (failed_child_ == child) has_child_error_.store(false, std::memory_order_release);
}

void CommHandle::AddChild(const std::shared_ptr<CommHandle>& child) {
  std::lock_guard lock(mutex_);
  std::erase_if(children_, [](const std::weak_ptr<CommHandle>& other) {
    const auto comm = other.lock();
    return comm == nullptr || comm->phase() != Phase::kInitialising;
  });
  children_.push_back(child);
}

void CommHandle::KeepGrowId(const boot::UniqueId& id) {
  std::lock_guard lock(mutex_);
  grow_id_ = id;
}

std::optional<boot::UniqueId> CommHandle::TakeGrowId() {
  std::lock_guard lock(mutex_);
  return std::exchange(grow_id_, std::nullopt);
}

void CommHandle::ReturnGrowId(const boot::UniqueId& id) {
  std::lock_guard lock(mutex_);
  if (!grow_id_) grow_id_ = id;  // else there is one for the grow after it
}

Result<Communicator*> CommHandle::Ready(const char* call) const {
  switch (phase()) {
    case Phase::kInitialising:
      return MakeStatus(Code::kInvalidUsage,
                        "%s: the communicator is still being initialised; poll ncclCommGetAsyncError "
                        "until it no longer returns ncclInProgress",
                        call);
    case Phase::kFailed:
      return MakeStatus(Code::kInvalidUsage, "%s: the communicator's initialisation failed; abort it", call);
    case Phase::kFinalizing:
    case Phase::kFinalized:
      return MakeStatus(Code::kInvalidUsage, "%s: the communicator has been finalized; destroy it", call);
    case Phase::kReady:
      break;
  }
  if (revoked())
    return MakeStatus(Code::kInvalidUsage, "%s: the communicator has been revoked; split, shrink or destroy it", call);
  if (core_->failed()) {
    const Status failure = core_->Failure();
    return MakeStatus(failure.code(), "%s: the communicator has failed: %.*s; %s it", call,
                      static_cast<int>(failure.message().size()), failure.message().data(),
                      core_->revoked() ? "split, shrink or destroy" : "abort");
  }
  return core_.get();
}

Status CommHandle::AsyncError() const {
  switch (phase()) {
    case Phase::kInitialising:
      return MakeStatus(Code::kInProgress, "initialisation in progress");
    case Phase::kFinalizing:
      if (core_->failed()) break;
      return MakeStatus(Code::kInProgress, "finalization in progress");
    case Phase::kFailed: {
      std::lock_guard lock(mutex_);
      return error_;
    }
    case Phase::kReady:
    case Phase::kFinalized:
      break;
  }
  const Status status = core_->AsyncError();
  if (MakesChild()) return MakeStatus(Code::kInProgress, "a communicator is being made from this one");
  const bool as_asked = revoked() || left_.load(std::memory_order_acquire);
  if (!status.ok() && !as_asked) return status;
  if (has_child_error_.load(std::memory_order_acquire)) {
    std::lock_guard lock(mutex_);
    return child_error_;
  }
  if (as_asked) return Status();
  if (windows_under_way_.load(std::memory_order_acquire) != 0)
    return MakeStatus(Code::kInProgress, "a window is being made");
  if (!has_window_error_.load(std::memory_order_acquire)) return Status();
  std::lock_guard lock(mutex_);
  return window_error_;
}

Status CommHandle::StartFinalizing(const char* call) {
  Phase ready = Phase::kReady;
  if (!phase_.compare_exchange_strong(ready, Phase::kFinalizing, std::memory_order_acq_rel)) {
    if (ready == Phase::kReady || ready == Phase::kInitialising) return Ready(call).status();
    return MakeStatus(Code::kInvalidArgument, "%s: argument comm has been finalized already; destroy it", call);
  }
  return Status();
}

// Does not throw, because this may be a thread of the library, and a thread that polls must see the end.
Status CommHandle::FinishFinalizing() {
  const Status waited = CatchAll("waiting for outstanding work", [this] { return core_->WaitIdle(&abort_), Status(); });
  if (!waited.ok()) core_->Fail(waited);
  phase_.store(Phase::kFinalized, std::memory_order_release);
  return core_->failed() ? core_->Failure() : Status();
}

Status CommHandle::Finalize(const char* call) {
  AXCCL_RETURN_IF_ERROR(StartFinalizing(call));
  return FinishFinalizing();
}

// Changes the phase before it returns, so calls that follow report that finalization is in progress.
Status CommHandle::FinalizeInBackground(const char* call) {
  AXCCL_RETURN_IF_ERROR(StartFinalizing(call));
  BeginWork();
  const Status started = StartDetached(call, [self = shared_from_this()] {
    (void)self->FinishFinalizing().ok();
    self->EndWork();
  });
  if (started.ok()) return MakeStatus(Code::kInProgress, "finalization in progress");
  phase_.store(Phase::kReady, std::memory_order_release);
  EndWork();
  return started;
}

// The wait ends: what is under way stops soon after abort_ is set, or is done.
void CommHandle::WaitUntilIdle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return busy_ == 0; });
}

void CommHandle::StopCreation() {
  std::lock_guard lock(mutex_);
  if (phase() == Phase::kInitialising) abort_.store(true, std::memory_order_seq_cst);
}

void CommHandle::Close() {
  StopCreation();
  device::host::Scheduler::Process().Notify();
  WaitUntilIdle();
  if (const auto owner = owner_.lock(); owner != nullptr) owner->ForgetFailureOf(this);
  if (core_ == nullptr) return;
  if (!core_->failed()) core_->WaitIdle(&abort_);
  if (core_->failed()) core_->WaitUntilUnreached();
  RemoveRegions();
}

void CommHandle::Abort() {
  std::shared_ptr<Communicator> core;
  std::vector<std::weak_ptr<CommHandle>> children;
  {
    std::lock_guard lock(mutex_);
    abort_.store(true, std::memory_order_seq_cst);
    core = core_;
    children = children_;
  }
  for (const auto& child : children) {
    if (const auto comm = child.lock(); comm != nullptr) comm->StopCreation();
  }
  if (core != nullptr) core->device().Abort();
  device::host::Scheduler::Process().Notify();
  WaitUntilIdle();
  if (const auto owner = owner_.lock(); owner != nullptr) owner->ForgetFailureOf(this);
  // No new one can have appeared: a creation that was running has failed.
  if (core == nullptr) return;
  core->Abort(MakeStatus(Code::kInvalidUsage, "the communicator was aborted"));
  RemoveRegions();
}

Status CommHandle::Revoke() {
  if (revoked_.exchange(true, std::memory_order_acq_rel))
    return MakeStatus(Code::kInvalidArgument, "argument comm has been revoked already");
  core_->Revoke();
  return Status();
}

void CommHandle::Leave() {
  left_.store(true, std::memory_order_release);
  core_->Abort(MakeStatus(Code::kInvalidUsage, "the communicator was shrunk with NCCL_SHRINK_ABORT"));
}

int CommHandle::AddReduction(Reduction reduction) {
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

Status CommHandle::RemoveReduction(int index) {
  std::lock_guard lock(mutex_);
  if (index < 0 || static_cast<size_t>(index) >= reductions_.size() || !reductions_[static_cast<size_t>(index)].live)
    return MakeStatus(Code::kInvalidArgument,
                      "argument op is not a live operator of this communicator (built in, destroyed, or made "
                      "on another)");
  reductions_[static_cast<size_t>(index)] = Reduction();
  return Status();
}

bool CommHandle::FindReduction(int index, Reduction* reduction) const {
  std::lock_guard lock(mutex_);
  if (index < 0 || static_cast<size_t>(index) >= reductions_.size()) return false;
  *reduction = reductions_[static_cast<size_t>(index)];
  return reduction->live;
}

bool CommHandle::InStep() { return device::host::Scheduler::Process().InStep(); }

Result<void*> CommHandle::AddRegion(void* base, size_t bytes, bool window) {
  std::map<const void*, Region> fresh;  // allocated first: nothing may fail once the memory is registered
  Region& region = fresh[nullptr] = Region{base, bytes, window, 0};
  if (!window && phase() != Phase::kInitialising && core_ != nullptr) region.number = core_->Register(base, bytes);
  auto node = fresh.extract(fresh.begin());
  std::unique_lock lock(mutex_);
  if (closed_) {
    lock.unlock();
    if (node.mapped().number != 0) (void)core_->Deregister(base, bytes, node.mapped().number).ok();
    return MakeStatus(Code::kInvalidUsage, "the communicator has ended meanwhile");
  }
  void* const handle = NewRegionHandle();
  node.key() = handle;
  regions_.insert(std::move(node));
  return handle;
}

Status CommHandle::MakeWindow(MakingCall* making, const exec::OwnShare& share, const TakeWindow& take) {
  AXCCL_ASSIGN_OR_RETURN(std::unique_ptr<exec::Window> made, comm::MakeWindow(making, share, &abort_));
  const exec::Window& window = *made;
  Region region{share.memory, share.bytes, true, 0, std::move(made)};
  std::lock_guard lock(mutex_);
  if (closed_) return MakeStatus(Code::kInvalidUsage, "the communicator has ended while a window was being made");
  regions_.emplace(window.handle(), std::move(region));
  take(window);
  return Status();
}

Status CommHandle::AddWindow(const char* call, std::shared_ptr<MakingCall> making, const exec::OwnShare& share,
                             const TakeWindow& take) {
  const auto run = [this, call, making, share, take] {
    return Prefixed(call, CatchAll(call, [&] { return MakeWindow(making.get(), share, take); }));
  };
  BeginWork();
  if (config_.blocking) {
    const Status status = run();
    EndWork();
    return status;
  }
  windows_under_way_.fetch_add(1, std::memory_order_acq_rel);
  has_window_error_.store(false, std::memory_order_release);
  const auto end = [this] {
    windows_under_way_.fetch_sub(1, std::memory_order_acq_rel);
    EndWork();
  };
  const Status started = StartDetached(call, [self = shared_from_this(), run, end] {
    if (const Status status = run(); !status.ok()) {
      AXCCL_WARN("%s", status.message().data());
      std::lock_guard lock(self->mutex_);
      self->window_error_ = status;
      self->has_window_error_.store(true, std::memory_order_release);
    }
    end();
  });
  if (started.ok()) return MakeStatus(Code::kInProgress, "a window is being made");
  making->Fail(started);
  end();
  return started;
}

Status CommHandle::RemoveRegion(const void* handle, bool window) {
  std::unique_lock lock(mutex_);
  const auto it = regions_.find(handle);
  if (it == regions_.end() || it->second.window != window)
    return MakeStatus(Code::kInvalidArgument, "argument %s is not a live %s of this communicator",
                      window ? "win" : "handle", window ? "window" : "registration");
  auto leaving = regions_.extract(it);
  const Region& region = leaving.mapped();
  const bool again =
      std::any_of(regions_.begin(), regions_.end(), [&](const auto& r) { return r.second.base == region.base; });
  lock.unlock();
  if (phase() == Phase::kInitialising || core_ == nullptr) return Status();
  if (Status status = core_->Deregister(region.base, region.bytes, region.number); !status.ok()) {
    lock.lock();
    regions_.insert(std::move(leaving));
    return status;
  }
  // Applications free what they deregister.
  if (!again) core_->device().LetGoOf(region.base);
  return Status();
}

// Called when the communicator ends and has no work any more.
void CommHandle::RemoveRegions() {
  std::map<const void*, Region> leaving;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    leaving.swap(regions_);
  }
  for (const auto& entry : leaving) {
    const Region& region = entry.second;
    const Status status =
        CatchAll("deregistering a buffer", [&] { return core_->Deregister(region.base, region.bytes, region.number); });
    if (!status.ok()) AXCCL_WARN("%s", status.message().data());
  }
}

bool CommHandle::FindWindow(const void* handle, void** base) const {
  std::lock_guard lock(mutex_);
  const auto it = regions_.find(handle);
  if (it == regions_.end() || !it->second.window) return false;
  *base = it->second.base;
  return true;
}

}  // namespace axccl::comm
