// The kinds of device that ranks live on: the host's, and GPUs. What differs between them is behind Platform and
// RankDevice (rank_device.h), so that communicators and the API ask for what they need and not for the kind.
//
// Thread-safe. Errors say which call of the platform failed and why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/cost/machine.h"
#include "src/device/host/stream.h"
#include "src/exec/protocols.h"

namespace axccl::exec {

class Platform;
class RankDevice;
struct StreamCall;

// Where a rank lives.
struct DeviceId {
  int ordinal = 0;
  const Platform* platform = nullptr;
  device::host::DeviceHold hold = nullptr;  // of a host device, as long as a rank lives there or is to
};

// What a rank takes part with in a new communicator.
struct RankOptions {
  DeviceId device;
  int rank = 0, ranks = 1;
  uint32_t lanes = 1;
  uint64_t scratch_bytes = 0;
  uint32_t areas = 0;          // of a device: created channels that the rank may use at a time
  double timeout_seconds = 0;  // of one operation, 0 = none
  double notice_seconds = 0;   // after which the user is told of a wait, 0 = never
  uint64_t map_bytes = 0;      // of a call's group: for less, buffers of peers in other processes are not mapped
  bool direct = true;          // false (NCCL_P2P_DISABLE): ranks do not meet in memory of their devices
  Protocols protocols;         // that the user allows
};

// What a device can do: how long things take there, and how many lanes an operation may have.
struct Capacity {
  cost::Machine machine;
  uint32_t lanes = 1;
};

class Platform {
 public:
  static const Platform& Host();
  // Without a CUDA toolkit at build time everything it is asked for is an error that says so.
  static const Platform& Cuda();
  virtual ~Platform() = default;

  // Tells platforms apart in what ranks send each other.
  virtual uint32_t number() const = 0;
  virtual std::string NameOf(int ordinal) const = 0;  // "the host", "CUDA device 3"
  virtual const char* log_name() const = 0;           // "device", "cudaDev"
  // Whether several ranks of a communicator may live on one device.
  virtual bool shares_devices() const = 0;
  // Whether ranks that share no memory can be in one communicator.
  virtual bool crosses_machines() const = 0;
  // Whether threads of the host do a rank's work, and are to be placed near its memory.
  virtual bool works_on_host() const = 0;

  // How many devices this process sees; an error says why it can use none.
  virtual Result<int> Count() const = 0;
  // The device that the calling thread means, held for a rank.
  virtual Result<DeviceId> Current() const = 0;
  // A device by number, of 0 <= ordinal < Count(), held for a rank.
  virtual DeviceId Take(int ordinal) const = 0;
  // The host device that serves what ranks on a device exchange beside their calls.
  virtual device::host::Device* HostDevice(int ordinal) const = 0;

  // `known`: what was found out for a parent communicator, or null. `min_lanes`: as configured.
  virtual Result<Capacity> Measure(int ordinal, int ranks, int min_lanes, const cost::Machine* known) const = 0;
  // Reads from the environment what concerns ranks of this platform alone.
  virtual Status ReadOptions(RankOptions* options) const = 0;
  virtual Result<std::unique_ptr<RankDevice>> Create(const RankOptions& options) const = 0;

  // Memory that peers reach, where ranks of this process live (ncclMemAlloc). Free: false when it is memory of another
  // platform.
  virtual Result<void*> Allocate(size_t bytes) const = 0;
  virtual Result<bool> Free(void* memory) const = 0;

  // Of a group: everything that can be wrong with its calls on this platform. Nothing has been enqueued then.
  virtual Status Prepare(std::vector<StreamCall>* calls) const = 0;
  // After that. Enqueues calls that run concurrently, those on one channel one after the other. After an error the
  // communicators of all calls have failed, as peers may be waiting for what could not be enqueued.
  virtual Status Launch(std::vector<StreamCall> calls) const = 0;
};

}  // namespace axccl::exec
