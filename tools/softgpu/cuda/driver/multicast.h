// A multicast object: a team of devices, and the memory that each of them has bound to it. A multicast address is then
// an address in the memory of all of them (engine/ops_multimem.cc).
//
// As CUDA documents cuMulticast*: a device joins once and for good. Memory can be bound, and the object mapped, when
// all devices of the team have joined; a call that is too early waits for that. Memory, offsets and sizes are multiples
// of the granularity, and memory that is bound to an object that processes share must be shareable, too. What happens
// where a device has bound nothing is not documented: here, it is an error of the kernel.
//
// The state is in the object's file, which all processes map that have the object; a process that has bound memory
// gives its descriptor to the others (descriptor_server.h). Its bindings end with its last handle and mapping of the
// object. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tools/softgpu/cuda/address_space.h"
#include "tools/softgpu/cuda/descriptor_server.h"
#include "tools/softgpu/cuda/driver/memory_object.h"

namespace softgpu::cuda {

class Multicast : public MulticastSource {
 public:
  static constexpr size_t kFileBytes = size_t{1} << 17;

  // Initialises a fresh file if there are properties. Returns null if the file cannot be mapped, or is no such object.
  static std::shared_ptr<Multicast> Open(int descriptor, const CUmulticastObjectProp* properties);
  ~Multicast() override;

  CUresult Join(int device);
  // Waits until all devices have joined.
  void AwaitTeam() const;
  bool Has(int device) const;
  CUresult Bind(uint64_t offset, const MemoryObjectPtr& memory, uint64_t memory_offset, uint64_t bytes);
  CUresult Unbind(int device, uint64_t offset, uint64_t bytes);
  size_t bytes() const;
  unsigned long long handle_types() const;

  bool Resolve(int device, uint64_t offset, engine::MulticastWindow* window) override;

 private:
  struct Binding;
  struct Shared;
  class Lock;
  // A stretch [begin, end) of offsets, as one device sees it.
  struct Stretch {
    uint64_t begin = 0, end = 0;
    std::vector<uint64_t> copies;
    std::shared_ptr<const void> backing;
  };
  using Mappings = std::vector<std::shared_ptr<Mapping>>;

  explicit Multicast(std::unique_ptr<Mapping> pages) : pages_(std::move(pages)) {}
  Shared& shared() const { return *reinterpret_cast<Shared*>(pages_->address()); }
  // These under the mutexes of the process and of the object.
  void ForgetIfStale();
  bool MakeStretch(int device, uint64_t offset, Stretch* stretch);
  std::shared_ptr<Mapping> MappingOf(const Binding& binding, bool lost);

  const std::unique_ptr<Mapping> pages_;
  std::mutex mutex_;
  uint64_t generation_ = 0;                                                 // of the bindings that these are from
  std::map<int, std::vector<Stretch>> stretches_;                           // by device
  std::map<std::pair<uint64_t, bool>, std::shared_ptr<Mapping>> mappings_;  // by binding, and whether its data is lost
  std::map<uint64_t, MemoryObjectPtr> bound_;                               // memory of this process, by binding
};

// The descriptor of memory that this process has bound, by the key of the binding; -1 if there is none.
int DescriptorOfBound(uint64_t key);
// Starts the server of this process's descriptors, or finds it (ipc.cc).
bool ServeOwnDescriptors(ServerAddress* address);

}  // namespace softgpu::cuda
