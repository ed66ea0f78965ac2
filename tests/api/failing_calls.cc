#include "tests/api/failing_calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <atomic>

namespace axccl::test {
namespace {

std::atomic<Failing> g_kind{Failing::kNone};
std::atomic<long> g_calls{0}, g_fails_at{0};
std::atomic<bool> g_failed{false};

// Whether this call of `kind` must fail; sets errno if so.
bool Fails(Failing kind, int error) {
  if (g_kind.load(std::memory_order_relaxed) != kind) return false;
  if (g_calls.fetch_add(1, std::memory_order_relaxed) + 1 != g_fails_at.load(std::memory_order_relaxed)) return false;
  g_failed.store(true, std::memory_order_relaxed);
  errno = error;
  return true;
}

void* Next(const char* name, std::atomic<void*>* known) {
  void* next = known->load(std::memory_order_relaxed);
  if (next == nullptr) known->store(next = dlsym(RTLD_NEXT, name), std::memory_order_relaxed);
  return next;
}

}  // namespace

const char* NameOf(Failing kind) {
  constexpr const char* kNames[] = {"none",   "malloc",        "mmap",      "memfd_create",
                                    "socket", "epoll_create1", "epoll_ctl", "pthread_create"};
  return kNames[static_cast<int>(kind)];
}

void Arm(Failing kind, long k) {
  g_failed = false;
  g_calls = 0;
  g_fails_at = k;
  g_kind = kind;
}

long Disarm() {
  g_kind = Failing::kNone;
  return g_calls;
}

bool HasFailed() { return g_failed; }

}  // namespace axccl::test

using axccl::test::Failing;
using axccl::test::Fails;
using axccl::test::Next;

// The C library's function of the name.
#define NEXT(name)                                                 \
  [] {                                                             \
    static std::atomic<void*> known{nullptr};                      \
    return reinterpret_cast<decltype(&name)>(Next(#name, &known)); \
  }()

#pragma GCC visibility push(default)  // as in the C library

// glibc's internal names of the public functions: dlsym itself may allocate.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* old, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) { return Fails(Failing::kMalloc, ENOMEM) ? nullptr : __libc_malloc(bytes); }
void* calloc(size_t count, size_t bytes) {
  return Fails(Failing::kMalloc, ENOMEM) ? nullptr : __libc_calloc(count, bytes);
}
void* realloc(void* old, size_t bytes) {
  return Fails(Failing::kMalloc, ENOMEM) ? nullptr : __libc_realloc(old, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  return Fails(Failing::kMalloc, ENOMEM) ? nullptr : __libc_memalign(alignment, bytes);
}
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  if (Fails(Failing::kMalloc, ENOMEM)) return ENOMEM;
  *out = __libc_memalign(alignment, bytes);
  return *out != nullptr ? 0 : ENOMEM;
}

void* mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  if (Fails(Failing::kMmap, ENOMEM)) return MAP_FAILED;
  return NEXT(mmap)(address, bytes, protection, flags, fd, offset);
}
int memfd_create(const char* name, unsigned flags) {
  return Fails(Failing::kMemfd, EMFILE) ? -1 : NEXT(memfd_create)(name, flags);
}
int socket(int domain, int type, int protocol) {
  return Fails(Failing::kSocket, EMFILE) ? -1 : NEXT(socket)(domain, type, protocol);
}
int epoll_create1(int flags) { return Fails(Failing::kEpollCreate, EMFILE) ? -1 : NEXT(epoll_create1)(flags); }
int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) {
  // Removing a descriptor needs no memory and does not fail.
  if (operation != EPOLL_CTL_DEL && Fails(Failing::kEpollCtl, ENOMEM)) return -1;
  return NEXT(epoll_ctl)(epoll, operation, fd, event);
}
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*), void* argument) {
  return Fails(Failing::kThread, EAGAIN) ? EAGAIN : NEXT(pthread_create)(thread, attributes, start, argument);
}
}

#pragma GCC visibility pop
