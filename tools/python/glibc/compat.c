/* What the headers and libstdc++ of a new glibc need that one of 2.28 does not have. Linked into every object of a
 * wheel that shall run there (cmake/axccl_wheel.cmake), hidden, so that each has its own.
 *
 * pthread_cond_clockwait is that of the C library where there is one. Otherwise the deadline is converted to the clock
 * of the condition: a jump of that clock moves the end of the wait, after which callers look at the right clock again.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* Not declared by headers any more. The first argument is the version of the struct, 1 on 64-bit x86. */
int __xstat(int version, const char* path, struct stat* out);
int __lxstat(int version, const char* path, struct stat* out);
int __fxstat(int version, int fd, struct stat* out);
#define STAT_VERSION 1

HIDDEN int stat(const char* path, struct stat* out) { return __xstat(STAT_VERSION, path, out); }
HIDDEN int lstat(const char* path, struct stat* out) { return __lxstat(STAT_VERSION, path, out); }
HIDDEN int fstat(int fd, struct stat* out) { return __fxstat(STAT_VERSION, fd, out); }
/* The same struct on 64-bit machines. */
HIDDEN int stat64(const char* path, struct stat64* out) { return __xstat(STAT_VERSION, path, (struct stat*)out); }
HIDDEN int lstat64(const char* path, struct stat64* out) { return __lxstat(STAT_VERSION, path, (struct stat*)out); }
HIDDEN int fstat64(int fd, struct stat64* out) { return __fxstat(STAT_VERSION, fd, (struct stat*)out); }

HIDDEN pid_t gettid(void) { return (pid_t)syscall(SYS_gettid); }

/* "No" is always right: reference counts are then atomic. */
HIDDEN char __libc_single_threaded = 0;

/* For std::random_device. getrandom gives up to 256 bytes at once, once the system has any. */
HIDDEN uint32_t arc4random(void) {
  uint32_t value = 0;
  while (getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value) {
  }
  return value;
}

typedef int (*Clockwait)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);

HIDDEN int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                  const struct timespec* deadline) {
  static Clockwait found;
  static int looked;
  if (!__atomic_load_n(&looked, __ATOMIC_ACQUIRE)) {
    __atomic_store_n(&found, (Clockwait)dlsym(RTLD_DEFAULT, "pthread_cond_clockwait"), __ATOMIC_RELAXED);
    __atomic_store_n(&looked, 1, __ATOMIC_RELEASE);
  }
  const Clockwait native = __atomic_load_n(&found, __ATOMIC_RELAXED);
  if (native != NULL) return native(condition, mutex, clock, deadline);
  struct timespec now, then;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &then);
  then.tv_sec += deadline->tv_sec - now.tv_sec;
  then.tv_nsec += deadline->tv_nsec - now.tv_nsec;
  if (then.tv_nsec < 0) then.tv_sec -= 1, then.tv_nsec += 1000000000;
  if (then.tv_nsec >= 1000000000) then.tv_sec += 1, then.tv_nsec -= 1000000000;
  return pthread_cond_timedwait(condition, mutex, &then);
}
