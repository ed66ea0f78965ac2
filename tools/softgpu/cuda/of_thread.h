// What each thread has of its own. Destructors of static objects may call CUDA, and run after those of the first
// thread's objects; so what is asked for by then is made anew, and stays.
#pragma once

#include <utility>

namespace softgpu::cuda {

// The calling thread's T; all of one T are the same object.
template <typename T>
T& OfThread() {
  static thread_local T* object = nullptr;
  struct Owner {
    ~Owner() { delete std::exchange(object, nullptr); }
  };
  if (object == nullptr) {
    object = new T;
    static thread_local const Owner owner;
    (void)owner;
  }
  return *object;
}

}  // namespace softgpu::cuda
