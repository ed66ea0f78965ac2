// The interface of a transport, and what processes on one machine share.
//
// Every process that has a communicator owns one *heap*: a sparse file in memory, of which every local peer process
// maps as much as it uses. All shared memory of AxCCL is in heaps: control lines, scratch, and what the user gets from
// ncclMemAlloc. A peer's object is therefore an offset in the peer's heap, with no descriptor or mapping per object.
// Offset 0 is the ProcessPage.
#pragma once

#include <pthread.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/base/format.h"
#include "src/base/pci_distance.h"
#include "src/base/sizes.h"
#include "src/base/status.h"

namespace axccl::transport {

// A futex word that sleepers of this process wait on; any process may ring it. Odd while a thread may sleep on it.
struct alignas(kCacheLine) Doorbell {
  std::atomic<uint32_t> rings{0};
};

inline constexpr int kDoorbells = 62;

inline constexpr size_t kPageBytes = 4096;  // granule of heaps

// The first two pages of a heap. Peers can only read the first, so a peer that writes to a wrong address cannot make a
// live process look dead, or change its identity; every peer may ring the doorbells in the second. Peers check
// everything in it, and never use it as a bound or an index.
struct ProcessPage {
  static constexpr uint64_t kMagic = 0x6c63637841ull;
  static constexpr uint32_t kVersion = 3;
  uint64_t magic;
  uint32_t version;
  uint32_t pid;
  // Robust, process-shared, held for the life of the process by a thread of the library. The kernel marks it when the
  // process dies, however it dies; see ProcessDied.
  alignas(kCacheLine) pthread_mutex_t liveness;
  alignas(kPageBytes) std::array<Doorbell, kDoorbells> doorbell;
};
static_assert(sizeof(ProcessPage) == 2 * kPageBytes && offsetof(ProcessPage, doorbell) == kPageBytes);

// True once the owner of the page is dead (killed, exited, exec'd). One relaxed load of a line that stays cached.
inline bool ProcessDied(const ProcessPage& page) {
  // glibc keeps the robust futex in the first word of the mutex; the kernel sets FUTEX_OWNER_DIED (bit 30) there.
  const uint32_t word = __atomic_load_n(reinterpret_cast<const uint32_t*>(&page.liveness), __ATOMIC_RELAXED);
  return (word & 0x40000000u) != 0;
}

// The properties that processes which share memory have in common, separate so that messages can say which one differs.
// See transports/shm/host_id.h.
struct HostId {
  std::array<uint8_t, 16> machine{};               // hash of the running kernel's boot id
  std::array<uint8_t, 16> given{};                 // hash of NCCL_HOSTID
  uint64_t network = 0, users = 0, processes = 0;  // namespaces
  uint64_t user = 0;

  auto operator<=>(const HostId&) const = default;
};

// What a heap consists of: see transports/shm/heap_file.h.
enum class HeapKind : uint8_t { kMemfd, kTmpfs, kPrivate };

// Everything that a peer needs to attach to a process of the same machine. Sent over the authenticated bootstrap.
struct ProcessAddress {
  std::array<uint8_t, 16> process_id{};  // random per process: mappings are cached by it
  HostId host_id;                        // equal where processes can share memory
  std::array<uint8_t, 16> token{};       // sent to the owner to request the heap
  std::array<char, 48> socket{};         // abstract Unix socket name, without the leading NUL
  uint64_t heap_bytes = 0;
  uint32_t pid = 0;
  HeapKind heap_kind = HeapKind::kMemfd;
  // Why it is not a memfd, and why it cannot be shared at all: errno.
  uint8_t memfd_error = 0, tmpfs_error = 0;
  uint8_t reserved = 0;
};

// A peer process whose heap is mapped here. Shared by all communicators of this process; unmapped when the last one
// releases it. Thread-safe.
//
// The heap is mapped in *windows*. Each begins at its start and is twice as long as the one before; a new one is made
// when an offset behind the last one is requested. Windows stay, and so do addresses in them. So address space is used
// for the part of a heap that this process uses, not for all that it might hold. (128 heaps of 1 TiB are more than a
// process has.)
class PeerProcess {
 public:
  virtual ~PeerProcess() = default;
  // The first window, which has the ProcessPage. For the own process: the own heap.
  std::byte* heap() const { return heap_; }
  size_t heap_bytes() const { return heap_bytes_; }
  // The address of [offset, offset + bytes) of the heap in this process. kRemoteError: there is no such range.
  // kSystemError: no address space is left for it, or no more memory may be locked; the text has the limit.
  Result<std::byte*> At(uint64_t offset, uint64_t bytes) {
    const uint64_t window = window_bytes_.load(std::memory_order_acquire);
    if (bytes <= window && offset <= window - bytes) return window_.load(std::memory_order_relaxed) + offset;
    return MapMore(offset, bytes);
  }
  ProcessPage* page() const { return reinterpret_cast<ProcessPage*>(heap_); }
  uint32_t pid() const { return pid_; }
  bool is_self() const { return is_self_; }
  bool Died() const { return !is_self_ && ProcessDied(*page()); }

 protected:
  // Maps a range that is not in the window.
  virtual Result<std::byte*> MapMore(uint64_t offset, uint64_t bytes) {
    return MakeStatus(Code::kRemoteError, "%llu bytes at %llu of the heap of process %u, which has %zu",
                      static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(offset), pid_,
                      heap_bytes_);
  }
  // Later windows are longer: a thread that sees a length sees the window that has it, or a later one.
  void SetWindow(std::byte* base, uint64_t bytes) {
    window_.store(base, std::memory_order_relaxed);
    window_bytes_.store(bytes, std::memory_order_release);
  }

  std::byte* heap_ = nullptr;
  size_t heap_bytes_ = 0;
  uint32_t pid_ = 0;
  bool is_self_ = false;

 private:
  std::atomic<std::byte*> window_{nullptr};
  std::atomic<uint64_t> window_bytes_{0};
};

// Receives messages for ranks of this process. One for all peers of a transport. Thread-safe.
class Inbox {
 public:
  virtual ~Inbox() = default;
  // Receives what has come for any rank of this process, unless another thread is doing so.
  virtual void Progress() = 0;
  // Between these two, a thread calls Progress repeatedly. Otherwise a thread of the library does: at once if the
  // caller is still `waiting` for a message, in a moment if not.
  virtual void BeginPolling() = 0;
  virtual void EndPolling(bool waiting) = 0;
};

// How this rank accesses another one of its communicator, or itself. Chosen when the two are connected (connect.h of a
// transport), so that later code needs no case distinctions.
//
// If the two share memory, the peer's block is mapped here, and the peer sees at once what this rank writes in its own.
// If they do not, there is a *mirror* of the peer's block here, in which everything arrives that the peer publishes.
// What this rank publishes is sent to the peer's mirror of this rank's block. If this rank has written a slot of the
// peer in the mirror here, that is sent to the peer's block itself.
//
// There is one for each pair of ranks of a communicator, on each side. All functions are thread-safe, except SetCalls.
class Reach {
 public:
  // Bytes of a block.
  struct Stretch {
    uint64_t offset = 0;
    uint32_t bytes = 0;
    bool of_peer = false;                // of the peer's block, as it is here; otherwise of this rank's block
    bool guarded = false;                // the first word is a sequence number, 0 while the rest is being written
    const std::byte* content = nullptr;  // what the peer is to see there; null: what is there
    bool on_device = false;              // in the part of an area that is on devices (Area::SetDevice)
  };
  static constexpr uint64_t kNoLine = ~uint64_t{0};
  static constexpr size_t kLineBytes = 64;
  // A line of this rank's block, or none, and the kLineBytes that the peer is to see there.
  struct LineAt {
    LineAt(uint64_t line) : offset(line) {}  // with what it has now
    LineAt(uint64_t line, const void* bytes) : offset(line), content(bytes) {}
    uint64_t offset;
    const void* content = nullptr;  // null: what it has now
  };
  static constexpr size_t kLargeBytes = 16u << 10;

  // Memory of a device that has the same slots as an area, and which a transport reads and writes by itself (GPUDirect
  // RDMA). It must stay while `sending`.
  class DevicePart {
   public:
    virtual ~DevicePart() = default;
    // Where bytes of this rank's area, or of the peer's mirror, are there; null: not there.
    virtual std::byte* At(bool of_peer, uint64_t offset, uint64_t bytes) const = 0;
    // Makes a call of the transport with the device's context.
    virtual void Call(const std::function<void()>& call) const = 0;
    // What an adapter has written there is visible to kernels that see what the calling thread stores from now on.
    virtual Status Land() const = 0;
  };
  // Whether areas can have such parts on the device at an address on PCI ("0000:65:00.0"), as far as the transport here
  // knows: no; yes, but whether an adapter is used is not known; or yes, by an adapter at that distance.
  enum class Devices : uint8_t { kNo, kSomehow, kByAdapter };
  struct DeviceAccess {
    Devices how = Devices::kNo;
    PciDistance distance = PciDistance::kSys;
    bool peer_memory = false;  // a module of the kernel shows adapters the memory of devices
  };
  virtual DeviceAccess AccessTo(const std::string& /*pci_address*/) const { return {}; }
  // Whether the transport can use memory of the part: what must be registered for that is. kSystemError says why not.
  virtual Status Register(const DevicePart& /*part*/, std::byte* /*memory*/, uint64_t /*bytes*/) const {
    return Status();
  }

  // Keeps a mirror of memory beside the block.
  class Area {
   public:
    virtual ~Area() = default;
    // Must precede all messages, on both sides, and AccessTo the device allow it there.
    void SetDevice(std::shared_ptr<const DevicePart> device) { device_ = std::move(device); }
    const DevicePart* device() const { return device_.get(); }

   private:
    std::shared_ptr<const DevicePart> device_;
  };

  virtual ~Reach() = default;
  Reach(const Reach&) = delete;
  Reach& operator=(const Reach&) = delete;

  // "shm"
  virtual const char* Name() const = 0;
  // The peer's block, as it is here.
  std::byte* block() const { return block_; }
  uint32_t pid() const { return process_->pid(); }
  // The page of the peer's process: where its threads sleep, and whether it lives.
  ProcessPage* page() const { return process_->page(); }
  bool Died() const { return process_->Died(); }
  bool same_process() const { return process_->is_self(); }
  // Whether every address of the peer is valid here.
  bool addresses() const { return addresses_; }
  // The inbox for what the peer publishes; null if it is visible as soon as it is written.
  virtual Inbox* inbox() const { return nullptr; }

  // ---- the peer's memory beside its block ----

  // The address of [offset, offset + bytes) of its heap; null if that is not mapped here. kRemoteError: there is no
  // such range.
  Result<std::byte*> At(uint64_t offset, uint64_t bytes) { return process_->At(offset, bytes); }
  // Connects memory that both ranks have under one `key`, this one at `own`, the peer at that offset of its heap.
  // Returns the address of the peer's memory, or of its mirror, which *area then keeps alive, as messages on their way
  // do. Data for an unknown key is lost, so both sides must have called this before anything is published.
  virtual Result<std::byte*> AddArea(uint64_t, std::byte*, uint64_t offset, uint64_t bytes, std::shared_ptr<Area>*) {
    return At(offset, bytes);
  }
  // Whether the peer's plain memory can be read by system call, if that is useful: reads the word at `address` in the
  // peer, which has the value `expected`.
  virtual bool TryCalls(uint64_t address, uint64_t expected) = 0;
  // Sets whether that holds on all ranks, and is allowed. Must precede all other uses.
  void SetCalls(bool calls) { calls_ = calls; }
  bool calls() const { return calls_; }
  // Copies from plain memory of the peer by system call. kRemoteError: the peer is dead.
  virtual Status Read(void* to, uint64_t from, size_t bytes) = 0;

  // ---- messages ----

  // How many messages this rank has received from the peer. Used by the threads that drive the rank's operations.
  uint32_t received() const { return received_.load(std::memory_order_relaxed); }
  void NoteReceived() { received_.fetch_add(1, std::memory_order_relaxed); }

  // ---- what this rank publishes ----

  // (area, stretches, line) Makes the stretches visible to the peer, and then the line at that offset of this rank's
  // block, whose first word is stored last there. What was published before is visible before it. But stretches of
  // kLargeBytes or more, in total, may be stored at any time from now on: the peer must have signalled that it is done
  // with what is there. Stretches must keep their bytes until the peer has answered them. `area`: null, or the memory
  // to which the offsets refer instead of the block.
  virtual void Publish(const std::shared_ptr<Area>&, std::span<const Stretch>, LineAt) {}
  // The same for what the peer does not need before this rank publishes something else: it may be kept until then, and
  // go with that. Its bytes are those of now.
  virtual void PublishLater(const std::shared_ptr<Area>& area, std::span<const Stretch> stretches, LineAt line) {
    Publish(area, stretches, line);
  }
  // The same for what does not need to be fast: it takes no connection for data where there is none, nor any other one
  // as long as a process of the peer's machine that has one passes it on (if `passes`). If that ends, or does not pass
  // it on in time, another one does, or the peer is called.
  virtual void PublishAside(std::span<const Stretch> stretches, LineAt line, bool /*passes*/ = true) {
    Publish(nullptr, stretches, line);
  }
  // The first rank of that process; -1: the peer is told itself.
  virtual int relay() const { return -1; }
  // The same for what every peer is told, whether or not it is ever told anything else, and which misleads nobody
  // however late it comes: it takes no connection at all, and no turn if nothing was published before. It never
  // replaces a newer one of the same place. If it has no turn, the peer may not get it.
  virtual void PublishState(std::span<const Stretch> stretches, LineAt line) { Publish(nullptr, stretches, line); }
  // Publishes what is kept. Returns whether there was anything.
  virtual bool PublishKept() { return false; }
  // Whether memory of this rank's block may still be sent.
  virtual bool sending() const { return false; }
  // Asks the peer's process to answer when it has received everything that was published.
  virtual void BeginFlush() {}
  // Waits until it has answered what it was asked last, or, if there is no connection for data, what it was told is on
  // its way; until it is dead, or the time is over.
  virtual void AwaitFlush(std::chrono::milliseconds) {}
  // Whatever arrives from now on is dropped; memory of this rank's block is not written any more.
  virtual void Detach() {}
  // Whether this rank's block may still be in use on behalf of the peer, unless the peer says that it has released it.
  virtual bool InUse() const { return !Died(); }

  // Where processes of other machines listen: see transports/remote/doors.h.
  virtual std::vector<sockaddr_storage> Doors() const { return {}; }

  // ---- texts ----

  // "pid 7"
  virtual std::string Place() const { return Format("pid %u", pid()); }
  // If Died(): the reason, and, with the numbers of this rank and the peer, "rank 1 (pid 7) died".
  virtual std::string Trouble() const { return "it died"; }
  virtual std::string DescribeLoss(int, int peer) const { return Format("rank %d (%s) died", peer, Place().c_str()); }

 protected:
  // `process`, or a substitute, must live as long as this object.
  Reach(PeerProcess* process, std::byte* block) : process_(process), block_(block), addresses_(process->is_self()) {}
  // For another block of the peer's.
  Reach(const Reach& other, std::byte* block, bool addresses)
      : process_(other.process_), block_(block), addresses_(addresses) {}

 private:
  PeerProcess* const process_;
  std::byte* const block_;
  const bool addresses_;
  bool calls_ = false;
  std::atomic<uint32_t> received_{0};
};

}  // namespace axccl::transport
