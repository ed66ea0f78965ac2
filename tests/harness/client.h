// A thread's communicators and streams, which nearly every test of the library needs.
//
// EXPECT_OK / ASSERT_OK check a call's result code and show the last-error text. A Clique is used by its thread only.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "axccl/axccl.h"
#include "nccl.h"
#include "tests/harness/gpu.h"
#include "tests/harness/run_ranks.h"

namespace axccl::harness {

testing::AssertionResult IsSuccess(const char* expression, ncclResult_t result);
#define EXPECT_OK(call) EXPECT_PRED_FORMAT1(::axccl::harness::IsSuccess, call)
#define ASSERT_OK(call) ASSERT_PRED_FORMAT1(::axccl::harness::IsSuccess, call)

// Rank 0 makes a unique id, and all ranks get it. Collective over the run; two barriers. False after a failure.
bool ShareUniqueId(RankContext& context, ncclUniqueId* id);

// A configuration whose communicators do not block.
ncclConfig_t NonBlocking();
// Begins to make a communicator that does not block; null, with a GoogleTest failure, if that is refused at once.
ncclComm_t BeginInit(const ncclUniqueId& id, int ranks, int rank);

// Returns the result of what `comm` is doing; ncclInProgress once a rank of the run has failed.
ncclResult_t AwaitComm(RankContext& context, ncclComm_t comm);
// The end of a call that has returned `called`, and whose end `comm` shows if it does not block.
inline ncclResult_t AwaitComm(RankContext& context, ncclResult_t called, ncclComm_t comm) {
  return called == ncclInProgress ? AwaitComm(context, comm) : called;
}
// Expects the communicator's size, and the rank's number in it.
void ExpectShape(ncclComm_t comm, int count, int rank);

// The stream as the NCCL calls take it.
inline cudaStream_t Cuda(axcclStream_t stream) { return axcclStreamToCuda(stream); }

// Facts about a rank's communicator.
inline axcclCommInfo_t InfoOf(ncclComm_t comm) {
  axcclCommInfo_t info{};
  info.size = sizeof(info);
  EXPECT_OK(axcclCommGetInfo(comm, &info));
  return info;
}

// The end of a call that was made on the stream: its own error, or that of the stream, which is waited for in any case,
// because it keeps its error until then.
inline ncclResult_t AwaitCall(ncclResult_t called, axcclStream_t stream) {
  const ncclResult_t ended = axcclStreamSynchronize(stream);
  return called == ncclSuccess ? ended : called;
}
// The same on either kind of device.
inline ncclResult_t AwaitCall(ncclResult_t called, axcclStream_t stream, ncclComm_t comm) {
  const ncclResult_t ended = EndOf(stream, comm);
  return called == ncclSuccess ? ended : called;
}

// Last-error text contains `part`.
bool LastErrorHas(const std::string& part);
// Expects all of the words.
void ExpectLastErrorHas(std::initializer_list<const char*> words);

// Expects that no communicator of all ranks can be made: every rank soon gets that result, and a last-error text that
// has all of `words`. Collective over the run, with one rank in each thread.
void ExpectNoInit(RankContext& context, ncclResult_t expected, std::initializer_list<const char*> words);

// The communicators of the ranks that one thread drives, with streams on their devices.
class Clique {
 public:
  Clique() = default;
  Clique(const Clique&) = delete;
  Clique& operator=(const Clique&) = delete;
  // Destroys what Destroy has not destroyed.
  ~Clique();

  // Collective over the run. Failures are GoogleTest failures; false then.
  bool Init(RankContext& context, int streams_per_rank = 1);
  // Takes over an existing communicator and makes streams for it.
  bool Adopt(ncclComm_t comm, int streams_per_rank = 1);

  int nranks() const { return nranks_; }
  int size() const { return static_cast<int>(members_.size()); }
  int rank(int i) const { return members_[i].rank; }
  ncclComm_t comm(int i = 0) const { return members_[i].comm; }
  axcclStream_t stream(int i = 0, int which = 0) const { return members_[i].streams[which]; }
  int streams_per_rank() const { return static_cast<int>(members_[0].streams.size()); }

  // Waits for all streams of all members.
  bool Synchronize();
  // Destroys streams and communicators.
  bool Destroy();
  // Forgets the communicators (the test has destroyed or aborted them); streams are still destroyed.
  void ForgetComms();
  // Expects that the first stream ends with ncclInvalidUsage because ranks made different calls, and a last-error text
  // that has all of `words`. Aborts the (only) communicator.
  void ExpectMismatch(std::initializer_list<const char*> words);

 private:
  struct Member {
    int rank = 0;
    int device = -1;  // -1: the device of the thread
    ncclComm_t comm = nullptr;
    std::vector<axcclStream_t> streams;
  };

  bool MakeStreams(int streams_per_rank);

  int nranks_ = 0;
  std::vector<Member> members_;
};

// RunRanks in which each thread has a clique of all ranks.
void RunCliques(const Layout& layout, const std::function<void(RankContext&, Clique&)>& body,
                const RunOptions& options = {});
// The same with communicators that do not block, one in each thread.
void RunNonBlockingCliques(const Layout& layout, const std::function<void(RankContext&, Clique&)>& body,
                           const RunOptions& options = {});

}  // namespace axccl::harness
