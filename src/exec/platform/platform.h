// The kinds of device on which ranks live: the host's, and GPUs. Platform and RankDevice (rank_device.h) hide their
// differences, so communicators and the API query what they need and not the kind.
//
// Thread-safe. Errors say which call of the platform failed and why.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/cost/machine.h"
#include "src/device/host/stream.h"
#include "src/exec/platform/protocols.h"

namespace axccl::exec {

class Platform;
class RankDevice;
struct StreamCall;

// The device of a rank.
struct DeviceId {
  int ordinal = 0;
  const Platform* platform = nullptr;
  device::host::DeviceHold hold = nullptr;  // of a host device, while a rank lives there or will
};

// The settings with which a rank joins a new communicator.
struct RankOptions {
  DeviceId device;
  int rank = 0, ranks = 1;
  uint32_t lanes = 1;
  uint32_t most_blocks = 64;  // of a device: that a launch may have for this rank
  uint64_t scratch_bytes = 0;
  bool spares_blocks = false;  // of a device: copy engines move data where they can (NCCL_CTA_POLICY_ZERO)
  bool mixes_graphs = true;    // of a device: graphs and other calls follow each other in the order of their launches
  // Of a call of ranks that all want that, for its whole group: bytes from which on copy engines move them.
  uint64_t copy_bytes = 0;
  uint32_t areas = 0;         // of a device: created channels that the rank may use at a time
  double notice_seconds = 0;  // after which the user gets a notice about a wait, 0 = never
  // Bytes of a call, for its whole group, from which on buffers of peers in other processes are mapped.
  uint64_t map_bytes = 0;
  // The same, from which on such ranks take grown scratch for calls whose buffers cannot be mapped; and how much each
  // takes, 0: none.
  uint64_t grow_bytes = 0, grown_scratch_bytes = 0;
  bool spans_machines = false;
  bool direct = true;     // false (NCCL_P2P_DISABLE): ranks do not communicate through device memory
  bool addresses = true;  // false (NCCL_P2P_DIRECT_DISABLE): buffers of peers in this process are mapped, too
  Protocols protocols;    // allowed by the user
  // NVLink SHARP (NCCL_NVLS_ENABLE): never, wherever the devices have it, or there and where it pays.
  enum class Nvls : uint8_t { kOff, kOn, kAuto } nvls = Nvls::kOff;
  uint64_t nvls_bytes = 0;  // of the device, for the slots that it reaches
  // GPUDirect RDMA: never, where UCX uses adapters that are near enough and knows of CUDA, or with whatever UCX does.
  enum class Adapters : uint8_t { kNever, kAuto, kAlways } adapters = Adapters::kNever;
  PciDistance adapter_distance = PciDistance::kPxb;
  uint64_t adapter_bytes = 0;  // of a slot, from which on it is used; the largest of the ranks' counts
};

// The cores of a device. Ranks of a machine share them whose `device` is the same. Plain data that ranks send.
struct Cores {
  std::array<uint8_t, 16> device{};  // identifies a GPU, in all processes; 0: all ranks share the machine's processors
  int32_t count = 0;                 // multiprocessors of a GPU
};

// How many lanes operations are to have, as configured (minCTAs, maxCTAs).
struct LaneBounds {
  int least = 1, most = 64;
};

// The abilities of a device: how long things take there, and how many lanes an operation may have, and has if it is
// large.
struct Capacity {
  cost::Machine machine;
  uint32_t lanes = 1, least_lanes = 1;
};

class Platform {
 public:
  static const Platform& Host();
  // Without a CUDA toolkit at build time, all its functions return an error that says so.
  static const Platform& Cuda();
  virtual ~Platform() = default;

  // Identifies the platform in what ranks send each other.
  virtual uint32_t number() const = 0;
  virtual std::string NameOf(int ordinal) const = 0;  // "the host", "CUDA device 3"
  virtual const char* log_name() const = 0;           // "device", "cudaDev"
  // Whether several ranks of a communicator may live on one device.
  virtual bool shares_devices() const = 0;
  // Whether threads of the host do a rank's work, and should be placed near its memory.
  virtual bool works_on_host() const = 0;

  // The number of devices that this process can use; an error says why it can use none.
  virtual Result<int> Count() const = 0;
  // The current device of the calling thread, held for a rank.
  virtual Result<DeviceId> Current() const = 0;
  // The device with that number, 0 <= ordinal < Count(), held for a rank.
  virtual DeviceId Take(int ordinal) const = 0;
  // The host device that serves the exchanges of ranks on a device apart from their calls.
  virtual device::host::Device* HostDevice(int ordinal) const = 0;

  virtual Result<Cores> CoresOf(int ordinal) const = 0;
  // `known`: the figures of a parent communicator, or null.
  virtual Result<Capacity> Measure(int ordinal, int ranks, LaneBounds bounds, const cost::Machine* known) const = 0;
  // Reads the settings of this platform from the environment.
  virtual Status ReadOptions(RankOptions* options) const = 0;
  virtual Result<std::unique_ptr<RankDevice>> Create(const RankOptions& options) const = 0;

  // Memory that peers can access, where ranks of this process live (ncclMemAlloc). Free returns false for memory of
  // another platform.
  virtual Result<void*> Allocate(size_t bytes) const = 0;
  virtual Result<bool> Free(void* memory) const = 0;

  // Checks everything that can be wrong with the calls of a group on this platform. Enqueues nothing.
  virtual Status Prepare(std::vector<StreamCall>* calls) const = 0;
  // Must follow Prepare. Enqueues calls that run concurrently, those on one channel one after the other. After an error
  // the communicators of all calls have failed, because peers may be waiting for what could not be enqueued.
  virtual Status Launch(std::vector<StreamCall> calls) const = 0;
};

// The calls of a group, of ranks on any devices: a launch on each platform. A launch is a set of calls that run
// concurrently (calls on one channel one after the other). It starts when all its streams and channels are done with
// earlier work, and holds later work back until it is done. (The default channel of a communicator and its pair
// channels count as one here.) Only on GPUs can enqueueing fail at once.
Status LaunchGroup(std::vector<StreamCall> calls);

}  // namespace axccl::exec
