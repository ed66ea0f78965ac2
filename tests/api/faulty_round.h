// The actions of two ranks while calls of the C library fail (failing_calls.h): they make a communicator, split it,
// reduce, send and receive, and destroy everything. Whatever fails, each call returns in time, with right data or with
// an error that has a text.
//
// Uses no memory of its own from malloc, because the faults must hit the library. An error found ends the process
// (Die).
#pragma once

#include <atomic>
#include <cstddef>

#include "axccl/axccl.h"
#include "nccl.h"

namespace axccl::test {

inline constexpr int kRanks = 2;
inline constexpr unsigned kSeconds = 60;  // for a process, which takes milliseconds

// Whether the two ranks of a round are processes, and how they make communicators.
struct Ways {
  bool processes = false;  // one rank each
  bool blocking = false;   // as in ncclConfig_t
};

// The state that both ranks share.
struct Round {
  Ways ways;
  ncclUniqueId id{};
  std::atomic<int> has_id{0};       // 1: yes, -1: it could not be made
  std::atomic<bool> failed{false};  // a rank has failed; if ranks are threads, the other one gives up
  std::atomic<int> ended{0};
};

[[gnu::format(printf, 1, 2), noreturn]] void Die(const char* format, ...);
void Nap();

class Rank {
 public:
  Rank(Round* round, int rank) : round_(round), rank_(rank) {}

  void Run();

 private:
  // The parts of Run. All but the last return false if a call has failed, or the other rank is known to have failed.
  bool Begin();  // makes a communicator, a stream and a buffer
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

// The resources that a process holds.
struct Held {
  Held();
  // An id is served until all its ranks have come, which takes two connections and the listener here.
  bool Within(const Held& usual) const {
    return descriptors <= usual.descriptors + 3 && threads <= usual.threads && mappings <= usual.mappings;
  }
  // The resources once threads that were about to end have ended, or after a few seconds.
  static Held WhenWithin(const Held& usual);

  int descriptors, threads;
  int mappings;  // mappings of heaps
};

}  // namespace axccl::test
