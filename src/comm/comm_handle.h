// The object behind a communicator handle: the life of a communicator from its creation to its end, and the objects
// that users attach to it (reduction operators, registrations, windows). The Communicator itself exists once
// initialisation is done.
//
// Thread-safe. The API's handle table keeps it alive while calls use it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/boot/boot.h"
#include "src/comm/communicator.h"
#include "src/exec/platform/window.h"

namespace axccl::comm {

enum class Phase : uint8_t { kInitialising, kReady, kFailed, kFinalizing, kFinalized };

struct Config {
  bool blocking = true;
  exec::LaneBounds lanes;
  bool spares_blocks = false;  // CTAPolicy has NCCL_CTA_POLICY_ZERO: copy engines where they can
  bool mixes_graphs = true;    // graphUsageMode is 2: the library orders graphs and other calls
  bool split_share = false;    // accepted, but children have resources of their own
  std::string name;
};

// A user-made reduction: a callback, or the sum of inputs, each multiplied by a scalar of its rank.
struct Reduction {
  bool live = false;
  DataType type = DataType::kFloat32;
  const void* pointer = nullptr;  // read when an operation starts; null: `bytes`
  uint64_t bytes = 0;
  std::shared_ptr<exec::Callback> callback;
};
// The most operators that a communicator can have at a time; the index takes 12 bits of the operator's number.
inline constexpr size_t kMaxReductions = 4096;

class CommHandle : public std::enable_shared_from_this<CommHandle> {
 public:
  using Job = std::function<Result<std::shared_ptr<Communicator>>(const std::atomic<bool>* abort)>;

  // `owner`: the communicator whose call makes this one in the background, if it is another one. Its AsyncError shows
  // the call, and its error until this communicator is ended.
  explicit CommHandle(Config config, const std::shared_ptr<CommHandle>& owner = nullptr)
      : config_(std::move(config)), owner_(owner) {}

  // Creation: runs `job` here, or on a thread of its own, with InProgress as the result until it is done. Whatever
  // stops the creation (Abort, Close, the abort of the parent) sets the flag that the job gets; the creation then
  // fails, however far the job came. Errors name `call`, which must live as long as the process.
  Status Create(const char* call, const Job& job);
  Status CreateInBackground(const char* call, Job job);
  // `child` is being made from this one: Abort also stops its creation.
  void AddChild(const std::shared_ptr<CommHandle>& child);

  // The id that ncclCommGetUniqueId has made for the next grow. Take: if there is one. Return: a grow did not use it.
  void KeepGrowId(const boot::UniqueId& id);
  std::optional<boot::UniqueId> TakeGrowId();
  void ReturnGrowId(const boot::UniqueId& id);

  const Config& config() const { return config_; }
  Phase phase() const { return phase_.load(std::memory_order_acquire); }
  // Returns the communicator when it can accept calls; otherwise an error that says why not and names `call`.
  Result<Communicator*> Ready(const char* call) const;
  // Fast form for the data path: null unless ready.
  const std::shared_ptr<Communicator>& core() const { return core_; }
  bool ready() const { return phase() == Phase::kReady; }

  // The current state: kInProgress while it is being made or finalized, or a call of it makes another one in the
  // background, and until that one's is not; otherwise the failure of its creation or its work, or of such a call.
  Status AsyncError() const;
  // Completes all outstanding work. A second call is kInvalidArgument. Errors name `call`.
  Status Finalize(const char* call);
  // The same; returns kInProgress once it is running.
  Status FinalizeInBackground(const char* call);
  // Waits for outstanding work (unless it failed) and releases everything. A creation that is running is stopped.
  void Close();
  // Ends everything now.
  void Abort();
  // Marks the communicator so that no more operations are accepted. kInvalidArgument the second time.
  Status Revoke();
  // Ends all work of this rank, which goes on in a communicator that it makes from this one.
  void Leave();
  bool revoked() const { return revoked_.load(std::memory_order_acquire); }

  // Reduction operators by index; -1: there are kMaxReductions. A callback gets its number.
  int AddReduction(Reduction reduction);
  Status RemoveReduction(int index);
  bool FindReduction(int index, Reduction* reduction) const;
  // Whether this thread is in a step of an operation: in a callback of a reduction.
  static bool InStep();
  // Distinguishes operators of different communicators.
  uint32_t salt() const { return salt_; }

  // Registered buffers, and windows of host ranks: local bookkeeping, because every heap is mapped by all peers anyway,
  // and GPU memory at its first use. Peers release what is removed. Plain memory is on pages of the heap while it is
  // registered. Returns its handle, or an error if the communicator has ended meanwhile.
  Result<void*> AddRegion(void* base, size_t bytes, bool window);
  // A window of all ranks on devices that make windows (window.h), in a call that has begun. `take` gets it, unless
  // there is an error. If the communicator does not block, returns kInProgress, and so does AsyncError until it is
  // done; then `take` has been called, or AsyncError returns the error until the next window is made.
  using TakeWindow = std::function<void(const exec::Window&)>;
  Status AddWindow(const char* call, std::shared_ptr<MakingCall> making, const exec::OwnShare& share,
                   const TakeWindow& take);
  Status RemoveRegion(const void* handle, bool window);
  bool FindWindow(const void* handle, void** base) const;

 private:
  Status StartFinalizing(const char* call);
  Status FinishFinalizing();
  struct Region {
    void* base;
    size_t bytes;
    bool window;
    uint64_t number;                            // of Communicator::Register
    std::unique_ptr<exec::Window> of_device{};  // a window that kernels use
  };

  Status Finish(const char* call, Result<std::shared_ptr<Communicator>> result);
  Status MakeWindow(MakingCall* making, const exec::OwnShare& share, const TakeWindow& take);
  void StopCreation();
  bool MakesChild() const;
  void ForgetFailureOf(const CommHandle* child);
  void BeginWork();
  void EndWork();
  void WaitUntilIdle();
  void RemoveRegions();

  const Config config_;
  std::atomic<Phase> phase_{Phase::kInitialising};
  const std::weak_ptr<CommHandle> owner_;
  std::atomic<bool> abort_{false}, revoked_{false}, left_{false};
  std::shared_ptr<Communicator> core_;  // set under mutex_ before phase_ leaves kInitialising
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int busy_ = 0;  // threads that create, finalize, or make a window
  Status error_;
  std::atomic<int> windows_under_way_{0};            // in the background
  std::atomic<bool> has_window_error_{false};        // the last of them has failed,
  Status window_error_;                              // because of this
  std::vector<std::weak_ptr<CommHandle>> children_;  // children that were being made when the last one was added
  std::atomic<int> children_under_way_{0};           // of which calls of this one make as many in the background
  std::atomic<bool> has_child_error_{false};         // one of the last of them,
  const CommHandle* failed_child_ = nullptr;         // this one, which may have ended,
  Status child_error_;                               // has failed because of this
  std::vector<Reduction> reductions_;
  std::optional<boot::UniqueId> grow_id_;
  uint16_t callbacks_ = 0;                 // made so far
  std::map<const void*, Region> regions_;  // by handle
  bool closed_ = false;                    // no windows are added any more
  const uint32_t salt_ = NextSalt();
  static uint32_t NextSalt();
};

}  // namespace axccl::comm
