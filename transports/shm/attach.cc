#include "transports/shm/attach.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

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
    pid_ = heap.page()->pid;
    is_self_ = true;
  }
};

class MappedProcess : public PeerProcess {
 public:
  MappedProcess(std::byte* heap, const Reply& reply) {
    heap_ = heap;
    heap_bytes_ = reply.heap_bytes;
    pid_ = reply.pid;
  }
  ~MappedProcess() override { UnmapHeap(heap_, heap_bytes_); }
};

// How long and for whom an Attach waits.
struct Patience {
  Clock::time_point deadline;
  const std::atomic<bool>* abort;
  uint32_t pid;  // of the peer, for messages
};

Status WaitError(Wait wait, const Patience& patience, const char* what) {
  if (wait == Wait::kAborted) {
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
  if (!fd) return SystemError(errno, "attaching to process %u: Unix socket", patience.pid);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = strnlen(to.socket.data(), to.socket.size());
  std::memcpy(address.sun_path + 1, to.socket.data(), length);
  const socklen_t bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  while (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0) {
    if (errno == EINTR) continue;
    if (errno == ECONNREFUSED) return Gone(patience);
    if (errno != EAGAIN) return SystemError(errno, "attaching to process %u: connect", patience.pid);
    // The peer's queue of connections is full, and Unix sockets cannot be polled for room in it.
    const auto retry = std::min(patience.deadline, Clock::now() + std::chrono::milliseconds(1));
    const Wait wait = service::PollUntil(-1, 0, retry, patience.abort);
    if (wait != Wait::kTimeout || retry == patience.deadline) return WaitError(wait, patience, "waiting for a place");
  }
  AXCCL_RETURN_IF_ERROR(CheckServerUser(fd.get(), patience));
  return fd;
}

// Receives the reply and the one descriptor that must come with it; closes whatever else came.
Result<Fd> ReceiveHeap(int fd, Reply* reply, const Patience& patience) {
  iovec data{reply, sizeof *reply};
  constexpr int kRoom = 4;
  alignas(cmsghdr) char control[CMSG_SPACE(kRoom * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
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

// A file whose size can change, or is not what was announced, would let its owner crash this process by SIGBUS.
Status CheckHeapFile(int fd, const Reply& reply, const ProcessAddress& address) {
  if (reply.process_id != address.process_id || reply.heap_bytes != address.heap_bytes || reply.pid != address.pid) {
    return MakeStatus(Code::kInvalidUsage,
                      "attaching to process %u: another process answered (pid %u, heap of %llu bytes)", address.pid,
                      reply.pid, static_cast<unsigned long long>(reply.heap_bytes));
  }
  struct stat info {};
  if (fstat(fd, &info) != 0) return SystemError(errno, "attaching to process %u: fstat of its heap", address.pid);
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const int seals = fcntl(fd, F_GET_SEALS);
  if (!S_ISREG(info.st_mode) || seals < 0 || (seals & kNeeded) != kNeeded) {
    return MakeStatus(Code::kInvalidUsage,
                      "attaching to process %u: its heap is not a memfd of sealed size (seals 0x%x)", address.pid,
                      static_cast<unsigned>(seals));
  }
  if (static_cast<uint64_t>(info.st_size) != reply.heap_bytes || reply.heap_bytes < kPageBytes ||
      reply.heap_bytes % kPageBytes != 0) {
    return MakeStatus(Code::kInvalidUsage, "attaching to process %u: its heap has %lld bytes, announced were %llu",
                      address.pid, static_cast<long long>(info.st_size),
                      static_cast<unsigned long long>(reply.heap_bytes));
  }
  return Status();
}

Result<std::shared_ptr<PeerProcess>> AttachAnew(const ProcessAddress& address, const Patience& patience) {
  if (const char* const apart = WhyApart(address.host_id, CurrentHostId()); apart != nullptr) {
    return MakeStatus(Code::kInvalidUsage, "attaching to process %u: it shares no memory with this one: %s", address.pid,
                      apart);
  }
  AXCCL_ASSIGN_OR_RETURN(const Fd socket, Connect(address, patience));
  Request request;
  request.token = address.token;
  if (send(socket.get(), &request, sizeof request, MSG_NOSIGNAL) != sizeof request) {
    if (errno == EPIPE || errno == ECONNRESET) return Gone(patience);
    return SystemError(errno, "attaching to process %u: send", address.pid);
  }
  const Wait wait = service::PollUntil(socket.get(), POLLIN, patience.deadline, patience.abort);
  if (wait != Wait::kReady) return WaitError(wait, patience, "waiting for its heap");
  Reply reply;
  AXCCL_ASSIGN_OR_RETURN(const Fd file, ReceiveHeap(socket.get(), &reply, patience));
  AXCCL_RETURN_IF_ERROR(CheckHeapFile(file.get(), reply, address));
  AXCCL_ASSIGN_OR_RETURN(std::byte* const heap, MapHeap(file.get(), reply.heap_bytes));
  std::shared_ptr<PeerProcess> peer = std::make_shared<MappedProcess>(heap, reply);
  if (peer->page()->magic != ProcessPage::kMagic || peer->page()->version != ProcessPage::kVersion) {
    return MakeStatus(Code::kInvalidUsage, "attaching to process %u: what it handed out is not a heap of this version",
                      address.pid);
  }
  if (peer->Died()) return Gone(patience);
  AXCCL_INFO(kShm, "attached to process %u, heap of %zu MiB at %p", peer->pid(), peer->heap_bytes() >> 20,
             static_cast<void*>(peer->heap()));
  return peer;
}

// The mappings of this process. An entry exists while somebody holds or makes the mapping.
class Cache {
 public:
  Result<std::shared_ptr<PeerProcess>> Get(const ProcessAddress& address, const Patience& patience) {
    std::unique_lock lock(mutex_);
    for (;;) {
      Entry& entry = entries_[address.process_id];
      if (auto peer = entry.peer.lock()) return peer;
      if (!entry.busy) {
        entry.busy = true;
        break;
      }
      // Another thread is at it. It may fail for reasons of its own (abort, deadline), so its result is looked up, not
      // shared.
      if (patience.abort != nullptr && patience.abort->load(std::memory_order_relaxed)) {
        return WaitError(Wait::kAborted, patience, "another thread attaches to it");
      }
      if (Clock::now() >= patience.deadline)
        return WaitError(Wait::kTimeout, patience, "another thread attaches to it");
      changed_.wait_for(lock, std::chrono::milliseconds(10));
    }
    lock.unlock();
    Result<std::shared_ptr<PeerProcess>> peer = AttachAnew(address, patience);
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
  return cache->Get(address, Patience{deadline, abort, address.pid});
}

}  // namespace axccl::shm
