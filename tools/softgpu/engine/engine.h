// Runs kernels, given as PTX, on the CPU: the part of the software GPU that implements instructions. It does not depend
// on CUDA's API.
//
// Device memory is host memory: a global (or generic) address is a pointer of this process. A module's variables live
// as long as the module. A loaded module is immutable (except the contents of its variables), so any number of launches
// may use it at once, from different threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace softgpu::engine {

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
};

struct Parameter {
  uint32_t offset = 0, bytes = 0;
};

// A kernel's requirements and parameters; its code stays inside the engine.
struct KernelInfo {
  std::string name;
  std::vector<Parameter> parameters;
  uint32_t parameter_bytes = 0;
  uint32_t shared_bytes = 0;  // static
  uint32_t local_bytes = 0;   // per thread
  uint32_t max_threads = 1024;
  uint32_t registers = 0;  // virtual registers
};

class Kernel;

class Module {
 public:
  // Returns null on error; `error` then names the line of PTX and what is not understood.
  static std::unique_ptr<Module> Load(std::string_view ptx, std::string* error);
  virtual ~Module() = default;
  // Returns null if there is none of that name.
  virtual const Kernel* FindKernel(std::string_view name) const = 0;
  virtual bool FindVariable(std::string_view name, void** address, size_t* bytes) const = 0;
  virtual std::vector<std::string> KernelNames() const = 0;
};

const KernelInfo& Info(const Kernel& kernel);
// Decodes every function that the kernel may call; otherwise, each is decoded when it is called first, and not
// understood then. Returns why one of them cannot be run, "" if all can.
std::string DecodeAll(const Kernel& kernel);

// A stretch of multicast addresses [begin, end), and what is behind it.
struct MulticastWindow {
  uint64_t begin = 0, end = 0;
  std::vector<uint64_t> copies;         // of each device, the address of the memory behind `begin`
  std::shared_ptr<const void> backing;  // keeps the memory mapped
};

// The addresses that a kernel may access. Called seldom, because executions remember the ranges that it returns.
class AddressMap {
 public:
  virtual ~AddressMap() = default;
  // Finds the allocated range that contains `address`. Returns false if there is none.
  virtual bool Find(uint64_t address, uint64_t* begin, uint64_t* end) const = 0;
  // Finds the stretch of multicast addresses that contains `address`. Returns false if there is none, or if a device
  // has no memory there. The addresses are for multimem instructions alone: Find() does not find them.
  virtual bool FindMulticast(uint64_t address, MulticastWindow* window) const {
    (void)address, (void)window;
    return false;
  }
  // Changes whenever a range is removed.
  virtual uint64_t generation() const = 0;
};

struct Options {
  uint64_t seed = 0;              // order of blocks and warps; 0 = in order
  uint32_t burst = 256;           // instructions that a warp runs before another one may
  uint32_t resident_blocks = 64;  // at a time
  bool detect_races = false;      // between blocks, on global memory
  bool trace = false;             // counts what warps do (trace.h)
};

struct LaunchConfig {
  const Kernel* kernel = nullptr;
  Dim3 grid, block;
  uint32_t dynamic_shared_bytes = 0;
  std::vector<std::byte> parameters;
  // In a cooperative launch: zeroed memory for the barrier of the grid, passed in %envreg1 (high) and %envreg2 (low).
  uint64_t grid_workspace = 0;
};

enum class State : uint8_t {
  kRunning,  // more work remains
  kWaiting,  // every warp polls memory (or sleeps): let others run before the next Run()
  kDone,
  kFailed,
};

// One launch. Used by one thread at a time; it may move between threads.
class Execution {
 public:
  // `map` may be null: then addresses are not checked.
  static std::unique_ptr<Execution> Start(LaunchConfig config, const Options& options, const AddressMap* map,
                                          std::string* error);
  virtual ~Execution() = default;
  // Runs about `instructions` PTX instructions (of warps), blocks side by side.
  virtual State Run(uint64_t instructions) = 0;
  // After a failure: kernel, block, thread, line of PTX, and what happened.
  virtual const std::string& error() const = 0;
};

// The number of bytes that all launches of this process have written to global memory by copies in bulk, for tests.
uint64_t BulkBytes();
// The most bytes that a block of this process has requested in bulk from global memory and not received yet.
uint64_t MostBulkBytesInFlight();

// What the warp of a block that has the most to do does until its last store to global memory (trace.h).
struct Effort {
  uint64_t trips = 0;         // round trips to global memory
  uint64_t instructions = 0;  // of PTX
};
// For launches with Options::trace: the least of each among the blocks that have ended since the last ForgetEfforts(),
// so among blocks that wait for others, that of one that did not have to.
Effort LeastEffort();
void ForgetEfforts();

}  // namespace softgpu::engine
