// A rank: the library's communicator with what the package keeps for it, its host device and its streams. Channels
// share it. Functions need the GIL, which is also what makes them thread-safe, and leave it to other threads while they
// wait.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "axccl/axccl.h"
#include "tools/python/core/waiting.h"

namespace axccl::python {

// One of the process's host devices, from the last one down: the library gives out those from the first one up.
class Device {
 public:
  // Raises axccl.Error if all are taken.
  Device();
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

class Rank {
 public:
  // Joins a communicator; waits for all ranks. `timeout`: seconds that a wait may last, if not the library's.
  static std::shared_ptr<Rank> Join(int rank, int size, const ncclUniqueId& id, const char* name,
                                    std::optional<double> timeout);
  // All ranks of a communicator of this process.
  static std::vector<std::shared_ptr<Rank>> MakeAll(int size);
  // This rank's part of a split; null for NCCL_SPLIT_NOCOLOR.
  std::shared_ptr<Rank> Split(int color, int key);

  explicit Rank(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  // Raises axccl.Error if it has been closed or aborted.
  ncclComm_t comm(const char* call) const {
    if (!open_) RaiseEnded(call);
    return comm_;
  }
  bool open() const { return open_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

  // Runs `enqueue`, which makes calls on the given stream, and waits until they are done. `call` names it in errors.
  template <class Enqueue>
  void Run(const char* call, Enqueue&& enqueue) {
    (void)comm(call);
    const Lease lease(this);
    Outcome outcome;
    bool through = true;
    {
      const Unlocked unlocked;
      const ncclResult_t enqueued = enqueue(axcclStreamToCuda(lease.stream));
      if (enqueued != ncclSuccess) {
        outcome = Take(enqueued);
      } else {
        through = Synchronize(lease.stream, &outcome);
      }
    }
    if (!through) RaiseInterrupted(call);
    RaiseIfFailed(outcome);
  }

  // Ends the communicator when its work is done. Has no effect on one that has ended. If a signal handler raises
  // meanwhile, aborts it, and raises that exception.
  void Close();
  // Ends it at once, and the calls of other threads with an error, also while one of them is in Close. `why` follows
  // "was aborted" in later errors.
  void Abort(const std::string& why);

 private:
  // A stream that no other call uses, so that a call gets its own errors and waits for nothing else.
  struct Lease {
    explicit Lease(Rank* of) : rank(of), stream(of->TakeStream()) {}
    ~Lease() { rank->streams_.push_back(stream); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Rank* const rank;
    axcclStream_t const stream;
  };

  [[noreturn]] void RaiseEnded(const char* call) const;
  [[noreturn]] void RaiseInterrupted(const char* call);
  axcclStream_t TakeStream();
  axcclStream_t NewStream();
  void Own(ncclComm_t comm);
  void Ready();  // once it owns a communicator

  const std::shared_ptr<Device> device_;
  ncclComm_t comm_ = nullptr;
  bool open_ = false;
  bool closing_ = false;  // a thread is in Close
  int rank_ = -1, size_ = 0;
  std::string ended_ = "was never made";
  std::vector<axcclStream_t> streams_;  // that no call uses
};

}  // namespace axccl::python
