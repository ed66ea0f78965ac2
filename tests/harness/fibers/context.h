// Switching between stacks. Used by one thread; compiled without sanitizers.
#pragma once

#include <cstddef>

namespace axccl::fibers {

// A stack and the function that runs on it. The stack stays allocated and is reused.
class Stack {
 public:
  explicit Stack(size_t bytes);
  ~Stack();
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  // The next Enter() will call `entry`, which must not return.
  void Prepare(void (*entry)());
  // Switch from the scheduler's stack to this one, and back to the scheduler.
  void Enter();
  void Leave();

 private:
  void* const memory_;
  const size_t bytes_;
  struct Machine;
  Machine* machine_;
};

}  // namespace axccl::fibers
