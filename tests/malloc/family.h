// The two malloc families of a test program: the C library's names, and AxCCL's functions.
//
// Where libaxccl-malloc.so is preloaded, large memory of both comes from the mapped heap; else only AxCCL's does, and
// the C library's own malloc shows that a test expects no more than what is promised.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <ostream>
#include <string>

#include "tests/harness/client.h"

namespace axccl::test {

struct Family {
  const char* name;
  void* (*allocate)(size_t);
  void* (*zeroed)(size_t, size_t);
  void* (*resize)(void*, size_t);
  void* (*aligned)(size_t, size_t);
  void (*release)(void*);
  size_t (*usable)(void*);
  bool mapped;  // whether large memory comes from the mapped heap
};
inline std::ostream& operator<<(std::ostream& out, const Family& family) { return out << family.name; }

// Whether this program runs under libaxccl-malloc.so.
bool IsPreloaded();
const Family& CLibrary();
const Family& Axccl();

// Runs `body` in a process of its own that has a communicator of one rank, and so a heap.
void WithHeap(const std::function<void(ncclComm_t comm)>& body,
              std::vector<std::pair<std::string, std::string>> environment = {});
// Whether peers can map [memory, memory + bytes): whether it may be a window.
bool CanBeMapped(ncclComm_t comm, void* memory, size_t bytes);

// Forks a child that exits with `body`'s result; an alarm ends it in any case. Returns its exit status, -1 if a signal
// ended it. `meanwhile` runs in the parent after the fork.
int InChild(const std::function<int()>& body, const std::function<void()>& meanwhile = {});

// Writes bytes that depend on `seed` and on their place; and the number of those that differ from that.
void Fill(void* memory, size_t bytes, uint64_t seed);
size_t CountWrong(const void* memory, size_t bytes, uint64_t seed);

// Bytes of shared memory that this process has touched (RssShmem), or -1.
int64_t TouchedSharedMemory();

class FamilyTest : public testing::TestWithParam<Family> {};

}  // namespace axccl::test

#define AXCCL_TEST_BOTH_FAMILIES                                                   \
  INSTANTIATE_TEST_SUITE_P(Both, FamilyTest, testing::Values(CLibrary(), Axccl()), \
                           [](const auto& info) { return std::string(info.param.name); })
