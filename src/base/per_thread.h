// One T for each thread that asks: PerThread<T>::Get().
//
// Unlike a thread_local T, it is there until the last instruction of the thread and of the process. Programs call the
// library from destructors of statics and of thread-locals of their own (a communicator that a static object ends), and
// those run after the thread-locals of the library would be gone. So the thread's storage holds a pointer without a
// destructor, and a key of pthreads frees the object: after all destructors of the thread's thread-locals, and never
// for the thread that ends the process. Whoever asks still later gets a new object. It takes 8 bytes of static TLS for
// each T.
#pragma once

#include <pthread.h>

#include <utility>

namespace axccl {

template <class T>
class PerThread {
 public:
  // The calling thread's, made at the first call. std::bad_alloc where there is no memory for it.
  static T& Get() { return own_ != nullptr ? *own_ : Make(); }
  // As Get, but null when the thread has none yet.
  static T* Find() { return own_; }

 private:
  static T& Make() {
    own_ = new T;
    // Without a key or memory for its value, the object outlives the thread.
    static pthread_key_t key{};
    static const bool have_key = pthread_key_create(&key, End) == 0;
    if (have_key) (void)pthread_setspecific(key, &own_);
    return *own_;
  }
  static void End(void* own) { delete std::exchange(*static_cast<T**>(own), nullptr); }

  static inline constinit thread_local T* own_ = nullptr;
};

}  // namespace axccl
