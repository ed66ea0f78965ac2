// The user's settings for the software GPUs of this process: environment variables SOFTGPU_*, read once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tools/softgpu/engine/engine.h"

namespace softgpu::cuda {

// What a driver may do only when the work of all devices is done, as CUDA documents it, or that of a stream.
enum ImplicitSync : unsigned {
  kSyncAlloc = 1,         // "alloc": memory of devices, managed memory
  kSyncHost = 2,          // "host": pinned memory, and pinning
  kSyncFree = 4,          // "free": all of these back
  kSyncModule = 8,        // "module": code is loaded or unloaded
  kSyncFirstLaunch = 16,  // "first-launch": of a kernel
  kSyncQuery = 32,      // "query": whether a stream is idle; no driver does that, but any call may wait for another one
  kSyncHostCopy = 64,   // "host-copy": a copy from host memory to host memory returns when its stream has made it
  kSyncPageable = 128,  // "pageable": a copy from or to host memory that is not pinned
  kSyncImport = 256,    // "import": memory of another process is opened
};

struct Settings {
  int devices = 4;                  // SOFTGPU_DEVICES
  size_t memory = size_t{8} << 30;  // SOFTGPU_MEMORY: bytes per device, K/M/G allowed
  int arch = 90;                    // SOFTGPU_ARCH: compute capability times ten
  int multiprocessors = 8;          // SOFTGPU_MULTIPROCESSORS
  int driver_version = 13000;       // SOFTGPU_DRIVER_VERSION
  int workers = 0;                  // SOFTGPU_WORKERS: threads that run kernels; 0 = as many as cores
  bool peer_access = true;          // SOFTGPU_PEER_ACCESS=0: devices do not reach each other's memory
  bool native_atomics = true;       // SOFTGPU_NATIVE_ATOMICS=0: devices are connected as by PCIe
  bool hides = false;              // SOFTGPU_HIDES=1: processes take each other's devices for ones that they do not see
  bool corrupt_peer = false;       // SOFTGPU_CORRUPT_PEER=1: data to and from peers' memory is silently lost
  int ipc = 1;                     // SOFTGPU_IPC=0: no cuIpc* handles; 2: nobody can open them
  bool vmm = true;                 // SOFTGPU_VMM=0: no virtual memory management (cuMemCreate and its like)
  int gpudirect = 1;               // SOFTGPU_GPUDIRECT=0: no GPUDirect RDMA; 2: devices order what adapters write
  int fabric = 0;                  // SOFTGPU_FABRIC=1: memory may have fabric handles; 2: this user's may not
  bool multicast = true;           // SOFTGPU_MULTICAST=0: no multicast objects
  bool bind = true;                // SOFTGPU_BIND=0: nothing can be bound to multicast objects
  bool corrupt_multicast = false;  // SOFTGPU_CORRUPT_MULTICAST=1: data of multimem instructions for peers is lost
  bool host_register = true;       // SOFTGPU_HOST_REGISTER=0: no cuMemHostRegister
  unsigned implicit_sync = 0;      // SOFTGPU_IMPLICIT_SYNC: bits of ImplicitSync
  bool range_ids = false;          // SOFTGPU_RANGE_IDS=1: numbers of mapped memory are those of the reserved addresses
  bool pitches = false;            // SOFTGPU_PITCHES=1: copies of rows need pitches as of cuMemAllocPitch
  bool aliases = false;            // SOFTGPU_ALIASES=1: devices see write-combined memory at other addresses
  uint32_t queues = 0;             // SOFTGPU_QUEUES: of a device, which its streams share; 0: one for each
  bool reuse = false;              // SOFTGPU_REUSE=1: addresses of freed memory are used again at once
  bool count_calls = false;        // SOFTGPU_COUNT_CALLS=1: of the functions of cuGetProcAddress (driver/counted.h)
  bool shutdown = false;           // SOFTGPU_SHUTDOWN=1: the driver ends at exit, and later calls say so
  bool verbose = false;            // SOFTGPU_VERBOSE=1: print on stderr what is refused and why
  engine::Options engine;          // SOFTGPU_SEED, _BURST, _RESIDENT_BLOCKS, _RACES, _TRACE
};

const Settings& Knobs();
// Whether devices have multicast objects: those of compute capability 9.0 and later, with virtual memory management.
inline bool HasMulticast() { return Knobs().multicast && Knobs().vmm && Knobs().arch >= 90; }

// Always prints a line on stderr: for what an error code alone cannot express.
void Report(const char* format, ...) __attribute__((format(printf, 1, 2)));
// Prints a line on stderr if SOFTGPU_VERBOSE is set.
void Explain(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace softgpu::cuda
