// Ranks on GPUs, as a communicator sees them: memory that peers reach, channels on it, and launches on streams of CUDA.
//
// Built without a CUDA toolkit (gpu_none.cc), everything here says so. What is behind it otherwise is in cuda_*.
// Thread-safe, but for the functions that connect, which come before everything else.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "src/base/status.h"
#include "src/exec/call.h"
#include "src/exec/channel.h"
#include "src/exec/protocols.h"
#include "transports/cuda_ipc/address.h"

namespace axccl::exec {

// How many GPUs this process sees; an error says why it can use none.
Result<int> NumGpus();
// The one the calling thread has chosen (cudaSetDevice).
Result<int> CurrentGpu();
// Of a GPU: how many blocks of the interpreter are worth running on it.
Result<int> GpuMultiprocessors(int device);

// Memory of the calling thread's GPU. False when `memory` is not from there.
Result<void*> AllocateOnGpu(size_t bytes);
bool FreeOnGpu(void* memory);

struct GpuOptions {
  int device = 0;
  int rank = 0, ranks = 1;
  uint32_t lanes = 1;
  uint64_t scratch_bytes = 0;
  uint32_t channels = 0;       // created ones that the rank may use at a time
  double timeout_seconds = 0;  // of one operation, 0 = none
  double notice_seconds = 0;   // after which the user is told of a wait, 0 = never
  uint64_t map_bytes = 0;      // of a call's group: for less, buffers of peers in other processes are not mapped
  bool direct = true;          // false (NCCL_P2P_DISABLE): Connect refuses
  Protocols protocols;         // that the user allows
};

// Operations so far whose data went in slots of words (LL) or rows (LL128).
struct PackedOperations {
  uint64_t ll = 0, ll128 = 0;
};

// The device side of one rank of a communicator.
class GpuRank {
 public:
  static Result<std::unique_ptr<GpuRank>> Create(const GpuOptions& options);
  // After Disconnect of all ranks that have connected.
  virtual ~GpuRank() = default;

  // Of the memory through which ranks meet: on the device, and after ConnectOnHost on the host.
  virtual cuda_ipc::BlockAddress address() const = 0;
  virtual size_t block_bytes() const = 0;
  // `addresses` and `members` of all ranks, in their order. An error says whose memory is out of reach, and why.
  virtual Status Connect(const std::vector<cuda_ipc::BlockAddress>& addresses, const std::vector<Member>& members) = 0;
  // After Connect of all ranks: an error unless data arrive both ways.
  virtual Status TestLinks() = 0;
  // Where one of the two has failed on some rank, after Disconnect of all: `memory` of the host, zeroed, by rank.
  virtual Status ConnectOnHost(const std::vector<std::byte*>& memory) = 0;
  virtual bool on_host() const = 0;
  // At the end of all that: what this rank allows, and then what each of all ranks does. They take what all allow.
  virtual Protocols allowed() const = 0;
  virtual void Agree(const std::vector<Protocols>& allowed) = 0;
  // After Connect: `tables`, each of table_bytes() of memory of the host, zeroed, by rank, through which ranks of
  // several processes tell each other where their buffers are. Until then none reads or writes another's.
  virtual size_t table_bytes() const = 0;
  virtual Status ShareBuffers(const std::vector<std::byte*>& tables, const std::vector<Member>& members) = 0;
  // The application does not mean to use the buffer soon: peers of other processes need not keep it mapped.
  virtual void LetGoOf(const void* buffer) = 0;
  // So far, of several processes, that went from buffer to buffer.
  virtual uint64_t mapped_operations() const = 0;
  virtual PackedOperations packed_operations() const = 0;
  // An error unless `call`, which is even, can run here.
  virtual Status CheckCall(const Call& call) const = 0;
  // kInvalidArgument unless kernels here may use all of it; `name` is what it is called.
  virtual Status CheckMemory(const void* memory, size_t bytes, const char* name) const = 0;
  // What a kernel found wrong or went wrong with, and whether one waits for a member that is gone or for too long; ok
  // when nothing. To be asked again and again.
  virtual Status CheckReport() = 0;
  // Makes all kernels of this rank end, soon.
  virtual void Abort() = 0;
  // Whether all that was launched outside of graphs is done.
  virtual bool Idle() = 0;
  // Waits for that. Only an abort or the end of the work makes it return.
  virtual void WaitIdle() = 0;
  // Lets go of all channels; nothing runs here any more.
  virtual void ReleaseChannels() = 0;
  // Lets go of the peers' memory; nothing runs here any more. The own memory stays for peers that still use it.
  virtual void Disconnect() = 0;
};

// A call for one rank. `channel`: of the host, which says who takes part.
struct GpuCall {
  GpuRank* rank = nullptr;
  Channel* channel = nullptr;
  Call call;
  bool local = false;  // a copy within the rank
  void* stream = nullptr;
  bool captured = false;  // see PrepareLaunch
};

// An error unless the streams of all calls are part of one capture on each device, or none is of any (says in the calls
// which it is), and unless there is room for all channels. Nothing has been enqueued then.
Status PrepareLaunch(std::vector<GpuCall>* calls);
// After that. Enqueues calls that run concurrently (those on one channel one after the other), in as few launches as
// there are devices and calls on a channel.
Status LaunchOnGpus(const std::vector<GpuCall>& calls);

}  // namespace axccl::exec
