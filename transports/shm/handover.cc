#include "transports/shm/handover.h"

#include <errno.h>
#include <pthread.h>
#include <sodium.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/log.h"
#include "src/base/service.h"
#include "src/base/service_acceptor.h"
#include "transports/shm/heap.h"
#include "transports/shm/host_id.h"
#include "transports/shm/offered_file.h"

namespace axccl::shm {
namespace {

using service::Acceptor;
using service::Fd;
using service::Guest;
using service::Loop;
using transport::ProcessAddress;

constexpr size_t kMaxGuests = 64;

// What all guests share. Lives as long as the process.
struct Offer {
  ProcessAddress address;
  const HeapFile* heap;
};

bool SameUser(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

// Answers a client of the same user, so that it does not wait. An empty `trouble` means that its request is wrong.
void Refuse(int fd, std::string_view trouble = "") {
  Reply reply;
  trouble.copy(reply.trouble.data(), reply.trouble.size() - 1);
  (void)!send(fd, &reply, sizeof reply, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void SendFile(int fd, const Offer& offer, int file) {
  Reply reply;
  reply.pid = offer.address.pid;
  reply.heap_bytes = offer.address.heap_bytes;
  reply.process_id = offer.address.process_id;
  iovec data{&reply, sizeof reply};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &file, sizeof(int));
  if (sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    const Status failed = SystemError(errno, "sendmsg");
    AXCCL_WARN("shared memory: handing it to a peer: %s", std::string(failed.message()).c_str());
    Refuse(fd, failed.message());
  }
}

class Client : public Guest {
 public:
  Client(Fd fd, const Offer* offer) : Guest(std::move(fd)), offer_(offer) {}

  Verdict OnEvent() override {
    Request request;
    iovec data{&request, sizeof request};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;  // no control buffer, so the kernel closes descriptors that a stranger sends
    const ssize_t n = recvmsg(fd(), &message, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return Verdict::kWait;
    if (n != sizeof request || (message.msg_flags & MSG_TRUNC) != 0) return Verdict::kDrop;
    if (request.magic != Request::kMagic) return Verdict::kDrop;
    if (request.version != transport::ProcessPage::kVersion) {
      Refuse(fd());
      return Verdict::kDrop;
    }
    if (sodium_memcmp(request.token.data(), offer_->address.token.data(), request.token.size()) == 0) {
      if (const Status open = offer_->heap->Check(); !open.ok()) {
        Refuse(fd(), open.message());
        return Verdict::kDrop;
      }
      SendFile(fd(), *offer_, offer_->heap->fd());
    } else if (!UseOfferedFile(request.token, [this](int file) { SendFile(fd(), *offer_, file); })) {
      AXCCL_INFO(kShm, "shared heap: a process of this user asked with a wrong token");
      Refuse(fd());
    }
    return Verdict::kDrop;
  }

  void Unheard(const Status& why) override { Refuse(fd(), why.message()); }

 private:
  const Offer* const offer_;
};

Result<Fd> ListenAbstract(const char* name) {
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return service::OpenError(errno, "shared heap: Unix socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = std::strlen(name);
  std::memcpy(address.sun_path + 1, name, length);
  const socklen_t bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0) {
    return SystemError(errno, "shared heap: bind of Unix socket @%s", name);
  }
  if (listen(fd.get(), SOMAXCONN) != 0) return SystemError(errno, "shared heap: listen on Unix socket @%s", name);
  return fd;
}

Status LockLiveness(Loop* loop, pthread_mutex_t* mutex) {
  int error = 0;
  AXCCL_RETURN_IF_ERROR(loop->Run([&] { error = pthread_mutex_trylock(mutex); }));
  if (error != 0) return SystemError(error, "shared heap: taking the liveness mutex");
  return Status();
}

}  // namespace

Result<ProcessAddress> StartHandover() {
  if (sodium_init() < 0) return MakeStatus(Code::kSystemError, "shared heap: libsodium finds no source of randomness");
  AXCCL_ASSIGN_OR_RETURN(Heap* const heap, Heap::Get());
  AXCCL_ASSIGN_OR_RETURN(Loop* const loop, Loop::Get());

  auto offer = std::make_unique<Offer>();
  ProcessAddress& address = offer->address;
  randombytes_buf(address.process_id.data(), address.process_id.size());
  randombytes_buf(address.token.data(), address.token.size());
  AXCCL_ASSIGN_OR_RETURN(address.host_id, CurrentHostId());
  address.heap_bytes = heap->bytes();
  address.heap_kind = heap->file().kind();
  address.memfd_error = static_cast<uint8_t>(heap->file().memfd_error());
  address.tmpfs_error = static_cast<uint8_t>(heap->file().tmpfs_error());
  address.pid = static_cast<uint32_t>(getpid());
  uint64_t name[2];
  randombytes_buf(name, sizeof name);
  std::snprintf(address.socket.data(), address.socket.size(), "axccl-%016llx%016llx",
                static_cast<unsigned long long>(name[0]), static_cast<unsigned long long>(name[1]));
  offer->heap = &heap->file();
  AXCCL_ASSIGN_OR_RETURN(Fd listener, ListenAbstract(address.socket.data()));

  const Offer* const shared = offer.get();
  auto acceptor = std::make_unique<Acceptor>(
      loop, std::move(listener),
      [shared](Fd fd) -> std::unique_ptr<Guest> {
        if (!SameUser(fd.get())) return nullptr;
        return std::make_unique<Client>(std::move(fd), shared);
      },
      [] { return Acceptor::Places{.strangers = kMaxGuests}; });
  Status started;
  AXCCL_RETURN_IF_ERROR(loop->Run([&] {
    started = acceptor->Start();
    if (!started.ok()) acceptor.reset();
  }));
  AXCCL_RETURN_IF_ERROR(started);
  // Last, with nothing left that can fail: the mutex can be taken only once.
  if (Status locked = LockLiveness(loop, &heap->page()->liveness); !locked.ok()) {
    AXCCL_RETURN_IF_ERROR(loop->Run([&] { acceptor.reset(); }));
    return locked;
  }
  const ProcessAddress result = address;
  (void)acceptor.release();  // both serve as long as the process lives, and the loop refers to them
  (void)offer.release();
  return result;
}

}  // namespace axccl::shm
