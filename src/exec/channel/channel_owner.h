// The services of a communicator for its channels.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "src/base/status.h"
#include "src/plan/contract.h"
#include "src/tune/tune.h"

namespace axccl::exec {

struct Program;

// How long a wait of an operation may last, and what set that.
struct Deadline {
  double seconds = 0;  // 0: forever
  const char* source = "AXCCL_TIMEOUT";
};

// All functions are thread-safe.
class ChannelOwner : public std::enable_shared_from_this<ChannelOwner> {
 public:
  virtual ~ChannelOwner() = default;
  // True once the communicator has failed or was aborted; Failure() then says why.
  virtual bool failed() const = 0;
  virtual Status Failure() const = 0;
  // Makes the communicator fail, and publishes that to the peers. The first failure stays.
  virtual void Fail(const Status& status) = 0;
  virtual Result<std::shared_ptr<const Program>> GetProgram(const plan::Contract& contract, std::string_view algorithm,
                                                            int lanes, int rank, const plan::Placement& placement) = 0;
  virtual const tune::Chooser& chooser() const = 0;
  // Whether [p, p + bytes) is in this process's heap, and its offset there.
  virtual bool InHeap(const void* p, size_t bytes, uint64_t* offset) const = 0;
  // For memory in this process's heap: makes it inaccessible to other processes, including their running steps.
  virtual Status TakeBack(const void* p, size_t bytes) = 0;
  // Whether TakeBack was called for any page of it.
  virtual bool TakenBack(const void* p, size_t bytes) const = 0;
  // Returns zeroed shared memory of this rank, and its offset in the heap. It lives as long as the communicator.
  virtual Result<std::byte*> TakeShared(uint64_t bytes, uint64_t* offset) = 0;
  virtual uint64_t cache_bytes() const = 0;   // a rank's share of the last-level cache
  virtual Deadline deadline() const = 0;      // of calls that have none of their own
  virtual double notice_seconds() const = 0;  // after which the user gets a notice about a wait, 0 = never

  // Number of launches. Counted by the thread that submits; simultaneous calls of several threads may be missed.
  uint64_t operations() const { return operations_.load(std::memory_order_relaxed); }
  void CountOperation() { operations_.store(operations() + 1, std::memory_order_relaxed); }
  // Counts an operation whose outputs ranks of other processes may write to, until a call with false.
  void CountExposed(bool exposed) { exposed_.fetch_add(exposed ? 1 : -1, std::memory_order_acq_rel); }
  // Whether there is one now. Acquire: after false, everything that those ranks have written is visible.
  bool HasExposed() const { return exposed_.load(std::memory_order_acquire) != 0; }
  // The algorithm of the operation that ended last, on any channel; `name` is static text.
  void NoteAlgorithm(const char* name) { last_algorithm_.store(name, std::memory_order_relaxed); }
  const char* last_algorithm() const { return last_algorithm_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> operations_{0};
  std::atomic<int> exposed_{0};
  std::atomic<const char*> last_algorithm_{""};
};

}  // namespace axccl::exec
