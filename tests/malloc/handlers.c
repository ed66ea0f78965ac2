/* A library with fork handlers and a lock of its own, which it registers before the program begins. */
#include <pthread.h>

#define EXPORT __attribute__((visibility("default")))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

EXPORT void AxcclTestLock(void);
EXPORT void AxcclTestUnlock(void);
void AxcclTestLock(void) { (void)pthread_mutex_lock(&lock); }
void AxcclTestUnlock(void) { (void)pthread_mutex_unlock(&lock); }

__attribute__((constructor)) static void Register(void) {
  (void)pthread_atfork(AxcclTestLock, AxcclTestUnlock, AxcclTestUnlock);
}
