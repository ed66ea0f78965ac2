// Which addresses of this process are memory of CUDA, and the kind of each. Device addresses are host addresses, so one
// map serves every device; View() returns what a device may access.
//
// A range that is removed leaves its addresses unmapped and unused for a long time, so that a late access faults
// instead of reaching other data. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "tools/softgpu/cuda/cuda_api.h"
#include "tools/softgpu/engine/engine.h"

namespace softgpu::cuda {

inline constexpr int kMaxDevices = 64;

enum class RangeKind : uint8_t {
  kDevice,      // cuMemAlloc
  kPool,        // cuMemAllocAsync
  kHost,        // cuMemHostAlloc
  kRegistered,  // cuMemHostRegister
  kManaged,     // cuMemAllocManaged
  kVariable,    // a module's variable
  kImported,    // cuIpcOpenMemHandle
  kMapped,      // cuMemMap
  kMulticast,   // cuMemMap of a multicast object
};

// A pool's memory can be accessed by its own device, and by those that cuMemPoolSetAccess names, whatever peers may.
struct PoolAccess {
  void* pool = nullptr;
  std::atomic<uint64_t> devices{0};  // a bit for each
};

// What is behind multicast addresses.
class MulticastSource {
 public:
  virtual ~MulticastSource() = default;
  // As `device` sees it. Returns false if a device has no memory there. The window has offsets in place of addresses.
  virtual bool Resolve(int device, uint64_t offset, engine::MulticastWindow* window) = 0;
};

struct Range {
  uint64_t begin = 0;
  size_t bytes = 0;
  RangeKind kind = RangeKind::kDevice;
  int device = 0;
  uint64_t id = 0;              // never used twice, but for mapped memory with SOFTGPU_RANGE_IDS
  uint64_t block = 0;           // kMapped: the number of the object, never used twice
  uint64_t alias = 0;           // kHost: where devices see it, if not here
  CUcontext context = nullptr;  // null for kMapped
  unsigned flags = 0;           // of cuMemHostAlloc and cuMemHostRegister
  uint64_t access = 0;          // kMapped, kMulticast, kImported: a bit for every device that may access it
  uint64_t offset = 0;          // kMapped, kMulticast: of the range in its object
  std::shared_ptr<MulticastSource> multicast;  // kMulticast
  std::shared_ptr<const PoolAccess> pool;      // kPool
  std::shared_ptr<void> backing;

  uint64_t end() const { return begin + bytes; }
  uint64_t OnDevices(uint64_t address) const { return alias == 0 ? address : alias + (address - begin); }
  bool on_host() const { return kind == RangeKind::kHost || kind == RangeKind::kRegistered; }
};

class AddressSpace {
 public:
  static AddressSpace& Get();

  void Insert(Range range);
  // Removes the range of that kind that begins at `begin`.
  std::optional<Range> Erase(uint64_t begin, RangeKind kind);
  std::optional<Range> Find(uint64_t address) const;
  std::optional<Range> FindId(uint64_t id) const;
  std::vector<Range> All() const;
  // The end of the range, or of mapped ones that follow it without a gap: they are used as one.
  uint64_t EndOfMapped(const Range& range) const;
  void SetPool(uint64_t begin, std::shared_ptr<const PoolAccess> pool);
  // Returns false if there is no range of that kind at `begin`.
  bool SetAccess(uint64_t begin, int device, bool allowed);

  // Sets whether kernels of `device` reach ordinary memory of `peer`.
  void SetPeerAccess(int device, int peer, bool allowed);
  bool peer_access(int device, int peer) const { return (peers_[device] >> peer & 1) != 0; }

  const engine::AddressMap& View(int device) const { return views_[device]; }
  uint64_t NextId() { return ++last_id_; }

 private:
  class DeviceView : public engine::AddressMap {
   public:
    bool Find(uint64_t address, uint64_t* begin, uint64_t* end) const override;
    bool FindMulticast(uint64_t address, engine::MulticastWindow* window) const override;
    uint64_t generation() const override { return space->generation_.load(std::memory_order_acquire); }

    const AddressSpace* space = nullptr;
    int device = 0;
  };

  AddressSpace();
  const Range* Lookup(uint64_t address) const;
  template <class Belongs>  // bool(const Range&)
  uint64_t EndOfRun(const Range& range, const Belongs& belongs) const;
  bool Reaches(int device, const Range& range) const;

  mutable std::shared_mutex mutex_;
  std::map<uint64_t, Range> ranges_;
  std::atomic<uint64_t> generation_{1};
  std::atomic<uint64_t> last_id_{0};
  std::array<std::atomic<uint64_t>, kMaxDevices> peers_{};
  std::array<DeviceView, kMaxDevices> views_;
};

// Addresses that this code chooses and what is mapped there; the destructor unmaps them and long prevents their reuse.
class Mapping {
 public:
  // Returns null if the system refuses. `descriptor` -1: zeroed private memory.
  static std::unique_ptr<Mapping> Map(size_t bytes, int descriptor, uint64_t offset);
  // Reserves addresses without memory.
  static std::unique_ptr<Mapping> Reserve(size_t bytes, size_t alignment);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  uint64_t address() const { return address_; }
  size_t bytes() const { return bytes_; }

 private:
  Mapping(uint64_t address, size_t bytes) : address_(address), bytes_(bytes) {}

  uint64_t address_;
  size_t bytes_;
};

inline constexpr size_t kPage = 4096;
inline constexpr size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace softgpu::cuda
