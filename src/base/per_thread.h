// One T for each thread that asks: PerThread<T>::Get().
//
// Unlike a thread_local T, the object exists until the last instruction of the thread and of the process. Programs call
// the library from destructors of their own statics and thread-locals (for example, a static object that destroys a
// communicator), and those may run after the library's thread-locals would be gone. The thread's storage therefore
// holds a pointer without a destructor, and a pthread key frees the object: after all destructors of the thread's
// thread-locals, and never for the thread that ends the process. A call that comes later still makes a new object. Each
// T takes 8 bytes of static TLS.
#pragma once

#include <pthread.h>

#include <utility>

namespace axccl {

template <class T>
class PerThread {
 public:
  // Returns the calling thread's object, which the first call makes. Throws std::bad_alloc when there is no memory for
  // it.
  static T& Get() { return own_ != nullptr ? *own_ : Make(); }
  // As Get, but null when the thread has none yet.
  static T* Find() { return own_; }

 private:
  static T& Make() {
    own_ = new T;
    // If the key or the memory for its value is missing, the object outlives the thread.
    static pthread_key_t key{};
    static const bool have_key = pthread_key_create(&key, End) == 0;
    if (have_key) (void)pthread_setspecific(key, &own_);
    return *own_;
  }
  static void End(void* own) { delete std::exchange(*static_cast<T**>(own), nullptr); }

  static inline constinit thread_local T* own_ = nullptr;
};

}  // namespace axccl
