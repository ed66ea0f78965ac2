#include "tools/softgpu/cuda/descriptor_server.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

namespace softgpu::cuda {
namespace {

// Closes at the end of the scope.
class Socket {
 public:
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return descriptor_; }
  int Release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

socklen_t NameOf(const ServerAddress& address, sockaddr_un* name) {
  *name = {};
  name->sun_family = AF_UNIX;
  // A leading zero byte makes the name abstract.
  const int length = std::snprintf(name->sun_path + 1, sizeof name->sun_path - 1, "softgpu-%u-%016llx", address.pid,
                                   static_cast<unsigned long long>(address.nonce));
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
}

// A peer that is stopped must not block this process for long.
void LimitWaiting(int socket, int seconds) {
  const timeval limit = {seconds, 0};
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

bool SameUser(int socket) {
  ucred peer = {};
  socklen_t bytes = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}

// Sends one message of a byte, with a descriptor if there is one.
void Answer(int socket, int descriptor) {
  char known = descriptor >= 0 ? 1 : 0;
  iovec text = {&known, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  sendmsg(socket, &message, MSG_NOSIGNAL);
}

int ReceiveDescriptor(int socket) {
  char known = 0;
  iovec text = {&known, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1 || known == 0) return -1;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return -1;
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
  return descriptor;
}

void Serve(int listener, const DescriptorLookup& lookup) {
  while (true) {
    const Socket peer(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (peer.get() < 0 || !SameUser(peer.get())) continue;
    LimitWaiting(peer.get(), 1);
    uint64_t key = 0;
    if (recv(peer.get(), &key, sizeof key, MSG_WAITALL) == sizeof key) Answer(peer.get(), lookup(key));
  }
}

bool StartServer(const DescriptorLookup& lookup, ServerAddress* address) {
  Socket listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  address->pid = static_cast<uint32_t>(getpid());
  if (getrandom(&address->nonce, sizeof address->nonce, 0) != sizeof address->nonce) return false;
  sockaddr_un name;
  const socklen_t bytes = NameOf(*address, &name);
  if (listener.get() < 0 || bind(listener.get(), reinterpret_cast<sockaddr*>(&name), bytes) != 0) return false;
  if (listen(listener.get(), 64) != 0) return false;
  std::thread(Serve, listener.Release(), lookup).detach();
  return true;
}

}  // namespace

bool ServeDescriptors(const DescriptorLookup& lookup, ServerAddress* address) {
  static std::mutex mutex;
  static bool running = false;
  static ServerAddress own;
  std::lock_guard lock(mutex);
  if (!running) running = StartServer(lookup, &own);
  *address = own;
  return running;
}

int FetchDescriptor(const ServerAddress& address, uint64_t key) {
  const Socket peer(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un name;
  const socklen_t bytes = NameOf(address, &name);
  LimitWaiting(peer.get(), 10);
  if (connect(peer.get(), reinterpret_cast<sockaddr*>(&name), bytes) != 0 || !SameUser(peer.get())) return -1;
  if (send(peer.get(), &key, sizeof key, MSG_NOSIGNAL) != sizeof key) return -1;
  return ReceiveDescriptor(peer.get());
}

}  // namespace softgpu::cuda
