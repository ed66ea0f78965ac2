// A user in C++. It makes templates of the standard library that the library makes, too: in a static link, names of one
// must not meet those of the other.
#include <axccl/axccl.h>
#include <malloc.h>  // the C library's
#include <nccl.h>

#include <cstdlib>
#include <memory>
#include <string>

int main() {
  const std::shared_ptr<int> in = std::make_shared<int>(7);
  ncclComm_t comm = nullptr;
  int out = 0;
  if (ncclCommInitAll(&comm, 1, nullptr) != ncclSuccess) return 2;
  if (ncclAllReduce(in.get(), &out, 1, ncclInt32, ncclSum, comm, nullptr) != ncclSuccess) return 3;
  if (axcclStreamSynchronize(nullptr) != ncclSuccess) return 4;
  if (ncclCommDestroy(comm) != ncclSuccess) return 5;
  void* const block = std::malloc(10);
  if (malloc_usable_size(block) < 10) return 7;
  std::free(block);
  return std::to_string(static_cast<unsigned>(out)) == "7" ? 0 : 6;
}
