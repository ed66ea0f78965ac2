#include "transports/shm/attach.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

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

// The limits of an Attach.
struct Patience {
  Clock::time_point deadline;
  service::Stop stop;
  uint32_t pid;  // the peer, for messages
};

Status WaitError(Wait wait, const Patience& patience, const char* what) {
  if (wait == Wait::kStopped) {
    return MakeStatus(Code::kInvalidUsage, "attaching to process %u: aborted by the caller while %s", patience.pid,
                      what);
  }
  if (wait == Wait::kTimeout) {
    return MakeStatus(Code::kTimeout, "attaching to process %u: deadline passed while %s; is the process stopped?",
                      patience.pid, what);
  }
  return SystemError(errno, "attaching to process %u: poll", patience.pid);
}

Status Gone(const Patience& patience) {
  return MakeStatus(Code::kRemoteError, "attaching to process %u: the process is gone", patience.pid);
}

Status CheckServerUser(int fd, const Patience& patience) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return SystemError(errno, "attaching to process %u: SO_PEERCRED", patience.pid);
  }
  if (peer.uid != geteuid()) {
    return MakeStatus(Code::kInvalidUsage, "attaching to process %u: its socket is now held by user %u, not by user %u",
                      patience.pid, peer.uid, geteuid());
  }
  return Status();
}

Result<Fd> Connect(const ProcessAddress& to, const Patience& patience) {
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return service::OpenError(errno, "attaching to process " + std::to_string(patience.pid) + ": Unix socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = strnlen(to.socket.data(), to.socket.size());
  std::memcpy(address.sun_path + 1, to.socket.data(), length);
  const socklen_t bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  while (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0) {
    if (errno == EINTR) continue;
    if (errno == ECONNREFUSED) return Gone(patience);
    if (errno != EAGAIN) return SystemError(errno, "attaching to process %u: connect", patience.pid);
    // The peer's queue of connections is full, and a Unix socket cannot be polled for room in it.
    const auto retry = std::min(patience.deadline, Clock::now() + std::chrono::milliseconds(1));
    const Wait wait = service::PollUntil(-1, 0, retry, patience.stop);
    if (wait != Wait::kTimeout || retry == patience.deadline) return WaitError(wait, patience, "waiting for a place");
  }
  AXCCL_RETURN_IF_ERROR(CheckServerUser(fd.get(), patience));
  return fd;
}

// Receives the reply and the one descriptor that must come with it; closes all other descriptors.
Result<Fd> ReceiveHeap(int fd, Reply* reply, const Patience& patience) {
  iovec data{reply, sizeof *reply};
  constexpr int kRoom = 4;
  alignas(cmsghdr) char control[CMSG_SPACE(kRoom * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  // The hang-up is reported before the data that was sent first.
  if (n < 0 && errno == ECONNRESET) n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  const int error = errno;
  Fd received[kRoom];
  int count = 0;
  if (n >= 0) {
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const int fds = static_cast<int>((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
      for (int i = 0; i < fds && count < kRoom; ++i) {
        int number;
        std::memcpy(&number, CMSG_DATA(header) + i * sizeof(int), sizeof number);
        received[count++] = Fd(number);
      }
    }
  }
  if (n < 0 && error != ECONNRESET) return SystemError(error, "attaching to process %u: recvmsg", patience.pid);
  if (n <= 0) return Gone(patience);
  if (n == sizeof *reply && reply->magic == Reply::kMagic && reply->heap_bytes == 0 && reply->trouble[0] != 0) {
    return MakeStatus(
        Code::kRemoteError, "attaching to process %u: it lives, but could not hand out its heap: %s", patience.pid,
        Printable({reply->trouble.data(), strnlen(reply->trouble.data(), reply->trouble.size())}).c_str());
  }
  if (n == sizeof *reply && reply->magic == Reply::kMagic && reply->heap_bytes == 0) {
    return MakeStatus(
        Code::kInvalidUsage,
        "attaching to process %u: it refused; the address is not its own, or it uses version %u of the protocol "
        "and this process %u",
        patience.pid, reply->version, ProcessPage::kVersion);
  }
  if (n != sizeof *reply || reply->magic != Reply::kMagic || reply->version != ProcessPage::kVersion || count != 1 ||
      (message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) != 0) {
    return MakeStatus(
        Code::kInvalidUsage,
        "attaching to process %u: unexpected answer (%zd bytes, %d descriptors, flags 0x%x); do both processes "
        "use the same version of the library, and is a descriptor free (ulimit -n)?",
        patience.pid, n, count, static_cast<unsigned>(message.msg_flags));
  }
  return std::move(received[0]);
}

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
  AXCCL_ASSIGN_OR_RETURN(const Fd socket, Connect(address, patience));
  Request request;
  request.token = address.token;
  // A peer that has hung up may have sent a reason before.
  if (send(socket.get(), &request, sizeof request, MSG_NOSIGNAL) != sizeof request && errno != EPIPE &&
      errno != ECONNRESET)
    return SystemError(errno, "attaching to process %u: send", address.pid);
  const Wait wait = service::PollUntil(socket.get(), POLLIN, patience.deadline, patience.stop);
  if (wait != Wait::kReady) return WaitError(wait, patience, "waiting for its heap");
  Reply reply;
  AXCCL_ASSIGN_OR_RETURN(const Fd file, ReceiveHeap(socket.get(), &reply, patience));
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
  return cache->Get(address, self.host_id, Patience{deadline, service::StopOn(abort), address.pid});
}

}  // namespace axccl::shm
