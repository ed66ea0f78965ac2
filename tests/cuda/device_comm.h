// Device communicators as programs see them that were compiled with NCCL 2.28.7 to 2.32: the structs are those of
// NVIDIA's nccl_device.h.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/api/device_functions.h"
#include "tests/cuda/window_memory.h"

namespace axccl::tests {

inline constexpr unsigned kMagic = 0xcafebeef;

struct Resource {
  Resource* next;
  size_t size, align;
  uint32_t* handle;
  int signals, counters;
  uint32_t *signal, *counter;
};
struct TeamWish {
  TeamWish* next;
  ncclTeam team;
  bool multimem;
  void** handle;
};
struct Wishes {
  Resource* resources = nullptr;
  TeamWish* teams = nullptr;
  bool multimem = false;
  int barriers = 0, lsa_barriers = 0, rail_barriers = 0, ll_blocks = 0, ll_slots = 0;
  bool gin = false;
  int contexts = 0, signals = 0, counters = 0;
};
struct VersionedWishes {
  size_t size;
  unsigned magic, version;
  Wishes wishes;
  int connection;
  bool exclusive;
  int depth, traffic, world_barriers;
  bool strong, addresses;
  int stride, gin_type;
  bool by_runtime;
  int features, feature_barriers;
};

// Of programs compiled with that version; 0: with 2.28, whose structs carry none.
class DeviceComm {
 public:
  explicit DeviceComm(unsigned version) : version_(version) {
    std::fill(std::begin(bytes), std::end(bytes), kSentinel);
  }

  ncclResult_t Create(ncclComm_t comm, const Wishes& wishes) {
    if (version_ == 0) return ncclDevCommCreate(comm, &wishes, bytes);
    VersionedWishes versioned{};
    versioned.size = version_ < 22904 ? 72 : version_ < 23000 ? 88 : version_ < 23100 ? 96 : 120;
    versioned.magic = kMagic;
    versioned.version = version_;
    versioned.wishes = wishes;
    versioned.wishes.contexts = 4;
    // Of newer versions only.
    if (version_ < 23000) versioned.world_barriers = 99;
    if (version_ < 23100) versioned.by_runtime = true;
    return ncclDevCommCreate(comm, &versioned, bytes);
  }
  int skipped() const { return version_ >= 23000 ? 8 : 0; }
  size_t size() const { return version_ < 22904 ? 200 : version_ < 23000 ? 224 : version_ < 23100 ? 240 : 248; }
  // Of the address of multicast, and of the handle of the barriers behind it.
  int multicast() const { return version_ < 23100 ? 112 : 64; }
  template <class T>
  T Get(size_t offset) const {
    T value;
    std::memcpy(&value, bytes + skipped() + offset, sizeof(value));
    return value;
  }

  uint8_t bytes[256];

 private:
  const unsigned version_;
};

// A kernel whose first parameters are the device communicator and what says where its parts are, on a stream of the
// rank's.
class CommKernel {
 public:
  CommKernel(const char* name, axcclStream_t stream) : stream_(stream) {
    void* module = nullptr;
    EXPECT_EQ(driver_->load_module(&module, axccl_test_kernels), 0);
    EXPECT_EQ(driver_->get_function(&function_, module, name), 0);
  }
  void Launch(const DeviceComm& comm, std::vector<void*> others, unsigned blocks = 1, unsigned threads = 1) const {
    DeviceComm passed = comm;
    int skipped = comm.skipped(), multicast = comm.multicast();
    others.insert(others.begin(), {passed.bytes, &skipped, &multicast});
    ASSERT_EQ(driver_->launch(function_, blocks, 1, 1, threads, 1, 1, 0, stream_, others.data(), nullptr), 0);
  }
  void Wait() const { ASSERT_EQ(driver_->synchronize(stream_), 0); }

 private:
  const harness::GpuDriver* const driver_ = harness::EnterGpu();
  const axcclStream_t stream_;
  void* function_ = nullptr;
};

struct Properties {
  size_t size;
  unsigned magic, version;
  int rank, ranks, device, nvml;
  bool kernels, multimem;
  int gin, teams;
  bool one_sided;
  int railed_gin;
};

}  // namespace axccl::tests
