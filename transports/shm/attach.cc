#include "transports/shm/attach.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "src/base/format.h"
#include "src/base/log.h"
#include "src/base/service_fd.h"
#include "transports/shm/handover.h"
#include "transports/shm/handover_client.h"
#include "transports/shm/heap.h"
#include "transports/shm/host_id.h"
#include "transports/shm/mapping.h"

namespace axccl::shm {
namespace {

using service::Fd;
using service::Wait;
using transport::PeerProcess;
using transport::ProcessAddress;
using transport::ProcessPage;

class OwnProcess : public PeerProcess {
 public:
  explicit OwnProcess(const Heap& heap) {
    heap_ = heap.base();
    heap_bytes_ = heap.bytes();
    SetWindow(heap_, heap_bytes_);
    pid_ = heap.page()->pid;
    is_self_ = true;
  }
};

// The length of the first window: enough for blocks and buffers of common sizes.
constexpr uint64_t kFirstWindow = uint64_t{64} << 20;

class MappedProcess : public PeerProcess {
 public:
  Status Map(int file, const Reply& reply) {
    heap_bytes_ = reply.heap_bytes;
    pid_ = reply.pid;
    AXCCL_RETURN_IF_ERROR(windows_.Open(file));
    const uint64_t bytes = std::min<uint64_t>(kFirstWindow, heap_bytes_);
    AXCCL_ASSIGN_OR_RETURN(heap_, windows_.Map(bytes));
    SetWindow(heap_, mapped_ = bytes);
    return Status();
  }

 private:
  Result<std::byte*> MapMore(uint64_t offset, uint64_t bytes) override {
    if (offset > heap_bytes_ || bytes > heap_bytes_ - offset) return PeerProcess::MapMore(offset, bytes);
    std::lock_guard lock(mutex_);
    while (mapped_ < offset + bytes) {
      const uint64_t next = std::min<uint64_t>(std::max(2 * mapped_, std::bit_ceil(offset + bytes)), heap_bytes_);
      AXCCL_ASSIGN_OR_RETURN(last_, windows_.Map(next));
      AXCCL_INFO(kShm, "heap of process %u: mapped %llu MiB of it at %p", pid_,
                 static_cast<unsigned long long>(next >> 20), static_cast<void*>(last_));
      SetWindow(last_, mapped_ = next);
    }
    return last_ + offset;
  }

  std::mutex mutex_;
  Windows windows_;
  uint64_t mapped_ = 0;  // length of the last window; under mutex_
  std::byte* last_ = nullptr;
};

// If a file's size can change, or is not what was announced, its owner could crash this process by SIGBUS.
Status CheckHeapFile(int fd, const Reply& reply, const ProcessAddress& address) {
  if (reply.process_id != address.process_id || reply.heap_bytes != address.heap_bytes || reply.pid != address.pid) {
    return MakeStatus(Code::kInvalidUsage,
                      "attaching to process %u: another process answered (pid %u, heap of %llu bytes)", address.pid,
                      reply.pid, static_cast<unsigned long long>(reply.heap_bytes));
  }
  if (const char* const unsafe = WhyUnsafe(fd, address.heap_kind); unsafe != nullptr)
    return MakeStatus(Code::kInvalidUsage, "attaching to process %u: its heap %s", address.pid, unsafe);
  struct stat info {};
  if (fstat(fd, &info) != 0) return SystemError(errno, "attaching to process %u: fstat of its heap", address.pid);
  if (static_cast<uint64_t>(info.st_size) != reply.heap_bytes || reply.heap_bytes < kPageBytes ||
      reply.heap_bytes % kPageBytes != 0) {
    return MakeStatus(Code::kInvalidUsage, "attaching to process %u: its heap has %lld bytes, announced were %llu",
                      address.pid, static_cast<long long>(info.st_size),
                      static_cast<unsigned long long>(reply.heap_bytes));
  }
  return Status();
}

// The error for a process whose heap has no file.
Status KeptToItself(const ProcessAddress& address) {
  if (address.memfd_error == EFBIG)
    return MakeStatus(
        Code::kInvalidUsage,
        "attaching to process %u: only its own threads reach its memory, because it may not have a file long "
        "enough to share; raise its limit on the size of files (ulimit -f), or lower AXCCL_HEAP_BYTES",
        address.pid);
  return MakeStatus(
      Code::kInvalidUsage,
      "attaching to process %u: only its own threads reach its memory, as memfd_create failed there (%s) and so "
      "did a file in /dev/shm (%s); allow one of them, or put all ranks into one process",
      address.pid, std::generic_category().message(address.memfd_error).c_str(),
      std::generic_category().message(address.tmpfs_error).c_str());
}

Result<std::shared_ptr<PeerProcess>> AttachAnew(const ProcessAddress& address, const transport::HostId& self,
                                                const Patience& patience) {
  if (const char* const apart = WhyApart(address.host_id, self); apart != nullptr) {
    return MakeStatus(Code::kInvalidUsage, "attaching to process %u: it shares no memory with this one: %s",
                      address.pid, apart);
  }
  if (address.heap_kind == transport::HeapKind::kPrivate) return KeptToItself(address);
  Reply reply;
  AXCCL_ASSIGN_OR_RETURN(const Fd file, RequestFile(address.socket, address.token, patience, &reply));
  AXCCL_RETURN_IF_ERROR(CheckHeapFile(file.get(), reply, address));
  auto peer = std::make_shared<MappedProcess>();
  AXCCL_RETURN_IF_ERROR(peer->Map(file.get(), reply));
  if (peer->page()->magic != ProcessPage::kMagic || peer->page()->version != ProcessPage::kVersion) {
    return MakeStatus(Code::kInvalidUsage, "attaching to process %u: what it handed out is not a heap of this version",
                      address.pid);
  }
  if (peer->Died()) return Gone(patience);
  AXCCL_INFO(kShm, "attached to process %u, heap of %zu MiB at %p", peer->pid(), peer->heap_bytes() >> 20,
             static_cast<void*>(peer->heap()));
  return std::shared_ptr<PeerProcess>(std::move(peer));
}

// The mappings of this process. An entry exists while a thread holds or makes the mapping.
class Cache {
 public:
  Result<std::shared_ptr<PeerProcess>> Get(const ProcessAddress& address, const transport::HostId& self,
                                           const Patience& patience) {
    std::unique_lock lock(mutex_);
    for (;;) {
      Entry& entry = entries_[address.process_id];
      if (auto peer = entry.peer.lock()) return peer;
      if (!entry.busy) {
        entry.busy = true;
        break;
      }
      // Another thread is attaching. It may fail for reasons of its own (abort, deadline), so its result is looked up,
      // not shared.
      if (patience.stop && patience.stop()) {
        return WaitError(Wait::kStopped, patience, "another thread attaches to it");
      }
      if (Clock::now() >= patience.deadline)
        return WaitError(Wait::kTimeout, patience, "another thread attaches to it");
      changed_.wait_for(lock, std::chrono::milliseconds(10));
    }
    lock.unlock();
    auto peer = CatchAll("attaching to a process", [&] { return AttachAnew(address, self, patience); });
    lock.lock();
    Entry& entry = entries_[address.process_id];
    entry.busy = false;
    if (peer.ok()) entry.peer = peer.value();
    std::erase_if(entries_, [](const auto& item) { return !item.second.busy && item.second.peer.expired(); });
    changed_.notify_all();
    return peer;
  }

 private:
  struct Entry {
    std::weak_ptr<PeerProcess> peer;
    bool busy = false;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::array<uint8_t, 16>, Entry> entries_;
};

}  // namespace

Result<ProcessAddress> SelfAddress() {
  static auto* mutex = new std::mutex;
  static auto* address = new std::optional<ProcessAddress>;
  AXCCL_RETURN_IF_ERROR(service::CheckNotForked("offering the shared heap"));
  std::lock_guard lock(*mutex);
  if (!address->has_value()) {
    AXCCL_ASSIGN_OR_RETURN(*address, StartHandover());
  }
  return **address;
}

Result<std::shared_ptr<PeerProcess>> Attach(const ProcessAddress& address, Clock::time_point deadline,
                                            const std::atomic<bool>* abort) {
  static auto* cache = new Cache;
  AXCCL_RETURN_IF_ERROR(service::CheckNotForked("attaching to a process"));
  AXCCL_ASSIGN_OR_RETURN(const ProcessAddress self, SelfAddress());
  if (address.process_id == self.process_id) {
    AXCCL_ASSIGN_OR_RETURN(Heap* const heap, Heap::Get());
    return std::shared_ptr<PeerProcess>(std::make_shared<OwnProcess>(*heap));
  }
  return cache->Get(address, self.host_id,
                    Patience{deadline, service::StopOn(abort), Format("attaching to process %u", address.pid)});
}

}  // namespace axccl::shm
