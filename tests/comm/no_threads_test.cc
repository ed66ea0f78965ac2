// Making and ending communicators when the system starts no more threads (ulimit -u, the pids limit of a container):
// the call fails, and leaves everything unchanged.
#include <dlfcn.h>
#include <errno.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>

#include "tests/harness/client.h"

namespace axccl::tests {

// The number of threads that this process may still start.
std::atomic<int> g_threads_left{1 << 20};

namespace {

using harness::AwaitComm;
using harness::Clique;
using harness::Cuda;
using harness::ExpectLastErrorHas;
using harness::OneThread;
using harness::Processes;
using harness::RankContext;
using harness::RunCliques;
using harness::RunNonBlockingCliques;
using harness::RunRanks;

class FewThreads {
 public:
  explicit FewThreads(int left) { g_threads_left = left; }
  ~FewThreads() { g_threads_left = 1 << 20; }
};

TEST(NoThreads, TheFirstCallFailsAndWorksLater) {
  RunRanks(Processes(1), [](RankContext&) {
    ncclUniqueId id;
    {
      const FewThreads none(0);
      EXPECT_EQ(ncclGetUniqueId(&id), ncclSystemError);
      ExpectLastErrorHas({"ncclGetUniqueId", "no thread can be started", "ulimit -u"});
    }
    EXPECT_OK(ncclGetUniqueId(&id));
  });
}

TEST(NoThreads, InitAllFailsAndWorksLater) {
  RunRanks(Processes(1), [](RankContext&) {
    ncclComm_t comms[4] = {};
    ASSERT_OK(ncclCommInitAll(comms, 1, nullptr));  // starts the threads that a process needs once
    for (int left = 0; left < 3; ++left) {
      const FewThreads few(left);
      ncclComm_t none[4] = {};
      EXPECT_EQ(ncclCommInitAll(none, 4, nullptr), ncclSystemError);
      ExpectLastErrorHas({"ncclCommInitAll", "no thread can be started", "ulimit -u"});
      for (const ncclComm_t comm : none) EXPECT_EQ(comm, nullptr);
    }
    EXPECT_OK(ncclCommDestroy(comms[0]));
    ASSERT_OK(ncclCommInitAll(comms, 4, nullptr));
    for (const ncclComm_t comm : comms) EXPECT_OK(ncclCommDestroy(comm));
  });
}

TEST(NoThreads, GroupOfSplitsFailsAndWorksLater) {
  RunCliques(OneThread(3), [](RankContext& context, Clique& clique) {
    const auto split = [&](ncclComm_t(&children)[3]) {
      EXPECT_OK(ncclGroupStart());
      for (int i = 0; i < 3; ++i) EXPECT_OK(ncclCommSplit(clique.comm(i), 0, -i, &children[i], nullptr));
      return ncclGroupEnd();
    };
    for (int left = 0; left < 2; ++left) {
      const FewThreads few(left);
      ncclComm_t none[3] = {};
      EXPECT_EQ(split(none), ncclSystemError);
      ExpectLastErrorHas({"ncclGroupEnd", "no thread can be started"});
      for (const ncclComm_t comm : none) EXPECT_EQ(comm, nullptr);
    }
    ncclComm_t children[3] = {};
    ASSERT_OK(split(children));
    // Each destruction ends without waiting for the others.
    const FewThreads none(0);
    ASSERT_OK(ncclGroupStart());
    for (const ncclComm_t comm : children) ASSERT_OK(ncclCommDestroy(comm));
    EXPECT_OK(ncclGroupEnd());
  });
}

TEST(NoThreads, NonBlockingCallsFailAndWorkLater) {
  RunNonBlockingCliques(OneThread(1), [](RankContext& context, Clique& clique) {
    ncclComm_t child = nullptr;
    {
      const FewThreads none(0);
      EXPECT_EQ(ncclCommSplit(clique.comm(), 0, 0, &child, nullptr), ncclSystemError);
      ExpectLastErrorHas({"no thread can be started"});
      EXPECT_EQ(child, nullptr);
      // The caller has the error, so the communicator has none.
      EXPECT_OK(AwaitComm(context, clique.comm()));
    }
    ASSERT_EQ(ncclCommSplit(clique.comm(), 0, 0, &child, nullptr), ncclInProgress);
    ASSERT_OK(AwaitComm(context, child));
    {
      const FewThreads none(0);
      EXPECT_EQ(ncclCommFinalize(child), ncclSystemError);
    }
    // The communicator still takes calls.
    int value = 1;
    ASSERT_OK(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, child, Cuda(clique.stream())));
    ASSERT_OK(axcclStreamSynchronize(clique.stream()));
    const FewThreads none(0);
    EXPECT_OK(ncclCommAbort(child));
  });
}

}  // namespace
}  // namespace axccl::tests

// Takes precedence over the C library's function.
extern "C" [[gnu::visibility("default")]] int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                                                             void* (*start)(void*), void* argument) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto system = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  if (axccl::tests::g_threads_left.fetch_sub(1) <= 0) return EAGAIN;
  return system(thread, attributes, start, argument);
}
