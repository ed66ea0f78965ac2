// Calls from destructors of statics and of thread-locals, which may run after the destruction of thread-locals of the
// library: programs keep communicators in such objects and destroy them there. C++ destroys thread-locals of the thread
// that calls exit before all statics ([basic.start.term]), and a thread's thread-locals in the reverse order of their
// construction.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "axccl/axccl.h"
#include "nccl.h"

namespace {

constexpr size_t kBlocks = 512, kBytes = 512;

void Fail(const char* what) {
  std::fprintf(stderr, "%s; last error: %s\n", what, ncclGetLastError(nullptr));
  _Exit(1);
}

void Check(bool good, const char* what) {
  if (!good) Fail(what);
}

// Makes a call whose error text names `count` and is long enough to be on the heap.
void FailWith(int count) {
  ncclUniqueId id{};
  ncclComm_t comm = nullptr;
  Check(ncclCommInitRank(&comm, count, id, 0) == ncclInvalidArgument, "a wrong number of ranks was taken");
  char expected[64];
  std::snprintf(expected, sizeof(expected), "argument nranks is %d;", count);
  Check(std::strstr(ncclGetLastError(nullptr), expected) != nullptr, "the text is not the last error's");
}

// Allocates memory that the library may have freed, and checks that the library no longer writes there.
void CallAndWatch(const char* when, ncclComm_t comm) {
  std::vector<unsigned char*> blocks;
  for (size_t i = 0; i < kBlocks; ++i) {
    blocks.push_back(static_cast<unsigned char*>(std::malloc(16 + i)));
    std::memset(blocks.back(), 0x5a, 16 + i);
  }
  for (int count = -1; count > -8; --count) FailWith(count);
  Check(ncclGroupStart() == ncclSuccess && ncclGroupEnd() == ncclSuccess, "a group failed");
  const char* text = nullptr;
  int length = 0;
  Check(ncclParamGetParameter("NCCL_DEBUG", &text, &length) == ncclSuccess, "a parameter cannot be read");
  Check(ncclCommDestroy(comm) == ncclSuccess, "ncclCommDestroy failed");
  Check(ncclCommDestroy(comm) == ncclInvalidArgument, "a destroyed communicator was taken");
  for (size_t i = 0; i < kBlocks; ++i) {
    for (size_t byte = 0; byte < 16 + i; ++byte) Check(blocks[i][byte] == 0x5a, when);
    std::free(blocks[i]);
  }
}

ncclComm_t MakeAndUse() {
  ncclComm_t comm = nullptr;
  Check(ncclCommInitAll(&comm, 1, nullptr) == ncclSuccess, "ncclCommInitAll failed");
  for (int count = -1; count > -4; --count) FailWith(count);
  const char* text = nullptr;
  int length = 0;
  Check(ncclParamGetParameter("NCCL_DEBUG", &text, &length) == ncclSuccess, "a parameter cannot be read");
  return comm;
}

struct EndsIt {
  const char* when;
  ncclComm_t comm = nullptr;
  ~EndsIt() {
    if (comm != nullptr) CallAndWatch(when, comm);
  }
};

EndsIt of_process{"memory of others was written to while the process ended"};
thread_local EndsIt of_thread{"memory of others was written to while a thread ended"};

}  // namespace

int main() {
  std::thread([] {
    of_thread.comm = nullptr;  // constructed before the library's thread-locals
    of_thread.comm = MakeAndUse();
  }).join();
  of_process.comm = MakeAndUse();
  return 0;
}
