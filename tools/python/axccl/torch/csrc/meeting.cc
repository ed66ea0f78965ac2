#include "meeting.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "work.h"

namespace axccl::torch {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;
using Bytes = std::vector<uint8_t>;

constexpr const char* kId = "axccl_unique_id";
constexpr const char* kMixed = "axccl_mixed_backends";  // why no rank may go on
constexpr Milliseconds kBetweenLooks(100);

// The device of this process's ranks: groups of a process share it.
int ProcessDevice() {
  static const int device = [] {
    int current = 0;
    Check(axcclHostGetDevice(&current), "init");
    return current;
  }();
  return device;
}

void Pause(Milliseconds time) {
  const timespec pause{0, static_cast<long>(time.count()) * 1'000'000};
  nanosleep(&pause, nullptr);
}

// ---- gloo ----

// Where gloo keeps the addresses of a rank (its rendezvous::Context, for ProcessGroupGloo's first device).
std::string GlooKey(int rank) { return "0/" + std::to_string(rank); }

// gloo's entry of a rank begins with the name of the host and an address, each behind its length of 8 bytes. Returns
// one without an address, at which gloo stops with an error, or nothing if `entry` is not of that form.
Bytes WithoutAddress(const Bytes& entry) {
  constexpr uint64_t kWord = sizeof(uint64_t), kLongestName = 255, kLongestAddress = 1024;
  uint64_t name = 0, address = 0;
  if (entry.size() < 2 * kWord) return {};
  std::memcpy(&name, entry.data(), kWord);
  if (name > kLongestName || entry.size() < 2 * kWord + name) return {};
  std::memcpy(&address, entry.data() + kWord + name, kWord);
  if (address == 0 || address > kLongestAddress || entry.size() < 2 * kWord + name + address) return {};
  Bytes without(entry.begin(), entry.begin() + static_cast<long>(kWord + name));
  without.insert(without.end(), kWord, 0);
  without.insert(without.end(), entry.begin() + static_cast<long>(2 * kWord + name + address), entry.end());
  return without;
}

// Looks whether ranks of the group use gloo. Each rank looks at the next one only, so that the store of a large group
// has little to do: before some rank of gloo there is one of ours, which puts its finding where all of ours look.
class Watch {
 public:
  Watch(c10d::Store* store, int rank, int size, const std::string& name)
      : store_(store), rank_(rank), size_(size), name_(name) {
    // Otherwise the entries are of a group that this rank, too, has had by gloo in the same store and under this name.
    watching_ = size > 1 && !store_->check({GlooKey(rank_)});
  }

  // Throws if a rank uses gloo. `now`: without regard to when it last looked.
  void Look(bool now) {
    if (!watching_ || (!now && Clock::now() < next_)) return;
    next_ = Clock::now() + kBetweenLooks;
    const int next = (rank_ + 1) % size_;
    if (store_->check({GlooKey(next)})) {
      const std::string text = "rank " + std::to_string(next) + " of group '" + name_ +
                               "' uses the backend gloo, and rank " + std::to_string(rank_) +
                               " uses axccl; pass the same backend on all ranks";
      store_->set(kMixed, text);
    } else if (!store_->check({kMixed})) {
      return;
    }
    StopGloo();
    C10_THROW_ERROR(DistBackendError, "axccl: init: " + store_->get_to_str(kMixed));
  }

 private:
  // The ranks of gloo wait for the entry of this one.
  void StopGloo() {
    for (int rank = 0; rank < size_; ++rank) {
      if (rank == rank_ || !store_->check({GlooKey(rank)})) continue;
      const Bytes entry = WithoutAddress(store_->get(GlooKey(rank)));
      if (entry.empty()) continue;
      store_->set(GlooKey(rank_), entry);
      return;
    }
  }

  c10d::Store* const store_;
  const int rank_;
  const int size_;
  const std::string& name_;
  bool watching_ = false;
  Clock::time_point next_{};
};

// ---- waits ----

struct Waiting {
  c10d::Store* store;
  Watch* watch;  // null: of no interest
  ncclComm_t comm;
};

// For what rank 0 writes. A store's own wait ends in an error and a line on stderr.
ncclResult_t WaitForId(void* what, double seconds) {
  const auto* const waiting = static_cast<const Waiting*>(what);
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  for (Milliseconds pause(1);; pause = std::min(2 * pause, Milliseconds(32))) {
    waiting->watch->Look(false);
    if (waiting->store->check({kId})) return ncclSuccess;
    if (Clock::now() >= end) return ncclInProgress;
    Pause(pause);
  }
}

ncclResult_t WaitWatching(void* what, double seconds) {
  const auto* const waiting = static_cast<const Waiting*>(what);
  if (waiting->watch != nullptr) waiting->watch->Look(false);
  return WaitForComm(waiting->comm, seconds);
}

[[noreturn]] void Late(const char* call, const char* who, const std::string& name, Milliseconds timeout) {
  C10_THROW_ERROR(DistBackendError, std::string("axccl: ") + call + ": " + who + " of group '" + name +
                                        "' came within " + std::to_string(timeout.count()) + " ms (timeout)");
}

ncclComm_t MadeWatching(const char* call, ncclComm_t comm, const std::string& name, Milliseconds timeout,
                        Watch* watch) {
  Group pending(comm);
  Waiting waiting{nullptr, watch, comm};
  const ncclResult_t made = WaitLikePython(&pending, call, timeout, WaitWatching, &waiting);
  if (made == ncclInProgress) Late(call, "not all ranks", name, timeout);
  // Another rank may have found it, and gone.
  if (made != ncclSuccess && watch != nullptr) watch->Look(true);
  Check(made, call, comm);
  pending.Release();
  return comm;
}

}  // namespace

ncclConfig_t ConfigOf(const std::string& name) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.commName = name.c_str();
  return config;
}

ncclComm_t Made(const char* call, ncclComm_t comm, const std::string& name, Milliseconds timeout) {
  return MadeWatching(call, comm, name, timeout, nullptr);
}

ncclComm_t Meet(c10d::Store* store, int rank, int size, const std::string& name, Milliseconds timeout) {
  ncclUniqueId id;
  Watch watch(store, rank, size, name);
  if (rank == 0) {
    Check(ncclGetUniqueId(&id), "init");
    store->set(kId, Bytes(id.internal, id.internal + sizeof(id.internal)));
  } else {
    Waiting waiting{store, &watch, nullptr};
    if (WaitLikePython(nullptr, "init", timeout, WaitForId, &waiting) != ncclSuccess)
      Late("init", "not even rank 0", name, timeout);
    const Bytes found = store->get(kId);
    TORCH_CHECK(found.size() == sizeof(id.internal), "axccl: init: rank 0 has put ", found.size(),
                " bytes into the store, not ", sizeof(id.internal), "; all ranks must use the same version of axccl");
    std::memcpy(id.internal, found.data(), sizeof(id.internal));
  }
  ncclConfig_t config = ConfigOf(name);
  ncclComm_t comm = nullptr;
  Check(axcclHostSetDevice(ProcessDevice()), "init");
  Check(ncclCommInitRankConfig(&comm, size, id, rank, &config), "init");
  comm = MadeWatching("init", comm, name, timeout, &watch);
  if (rank == 0) {
    // All have read it; a group of the same name that is made later must not find it.
    try {
      store->deleteKey(kId);
    } catch (const std::exception&) {  // stores of files cannot
    }
  }
  return comm;
}

ncclComm_t Split(ncclComm_t comm, const std::vector<int>& ranks, const std::string& name, Milliseconds timeout) {
  const char* const call = "split_group";
  int self = 0;
  Check(ncclCommUserRank(comm, &self), call, comm);
  const auto place = std::find(ranks.begin(), ranks.end(), self);
  const bool member = place != ranks.end();
  ncclConfig_t config = ConfigOf(name);
  ncclComm_t part = nullptr;
  // No two parts have a rank in common, so its first one names a part.
  Check(ncclCommSplit(comm, member ? ranks[0] : NCCL_SPLIT_NOCOLOR, static_cast<int>(place - ranks.begin()), &part,
                      &config),
        call, comm);
  return part == nullptr ? nullptr : Made(call, part, name, timeout);
}

}  // namespace axccl::torch
