// What ranks do while calls of the C library fail (failing_calls.h): they make a communicator, split it, reduce, send
// and receive, and end all of it. Whatever fails, each call returns in time, with an error that has a text or with
// right data.
//
// Uses no memory of its own from malloc: the faults are for the library. What is wrong ends the process (Die).
#pragma once

#include <atomic>
#include <cstddef>

#include "axccl/axccl.h"
#include "nccl.h"

namespace axccl::test {

inline constexpr int kRanks = 2;
inline constexpr unsigned kSeconds = 60;  // for a process, which takes milliseconds

// Where the two ranks of a round are, and how they make communicators.
struct Ways {
  bool processes = false;  // of one each
  bool blocking = false;   // as ncclConfig_t has it
};

// What they share.
struct Round {
  Ways ways;
  ncclUniqueId id{};
  std::atomic<int> has_id{0};       // 1: yes, -1: there will be none
  std::atomic<bool> failed{false};  // one of them; where ranks are threads the other one gives up
  std::atomic<int> ended{0};
};

[[gnu::format(printf, 1, 2), noreturn]] void Die(const char* format, ...);
void Nap();

class Rank {
 public:
  Rank(Round* round, int rank) : round_(round), rank_(rank) {}

  void Run();

 private:
  // The parts of Run, all but the last false where a call has failed or the other rank is known to have.
  bool Begin();  // with a communicator, a stream and a buffer
  bool Split();
  bool Reduce();
  bool Exchange();
  void End();
  bool Good(ncclResult_t result, const char* call);
  bool Await(ncclComm_t comm, ncclResult_t started, const char* call);
  bool Meet();
  bool Done(ncclComm_t comm, ncclResult_t launched, const char* call);
  bool GivesUp() const { return !round_->ways.processes && round_->failed; }
  cudaStream_t Stream() const { return reinterpret_cast<cudaStream_t>(stream_); }

  static constexpr size_t kCount = 1000;

  Round* const round_;
  const int rank_;
  ncclConfig_t config_ = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comms_[2] = {nullptr, nullptr};  // the split one first: it ends first
  axcclStream_t stream_ = nullptr;
  void* buffer_ = nullptr;
};

// What a process holds.
struct Held {
  Held();
  // An id is served until all its ranks have come: here, two connections and the listener.
  bool Within(const Held& usual) const {
    return descriptors <= usual.descriptors + 3 && threads <= usual.threads && mappings <= usual.mappings;
  }
  // What is left when threads that were about to end have ended, or a few seconds are over.
  static Held WhenWithin(const Held& usual);

  int descriptors, threads;
  int mappings;  // of heaps
};

}  // namespace axccl::test
