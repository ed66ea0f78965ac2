// Switching between stacks. Used by one thread; compiled without sanitizers.
#pragma once

#include <cstddef>

namespace axccl::fibers {

// A stack with something that runs on it. The stack stays allocated, and is used again.
class Stack {
 public:
  explicit Stack(size_t bytes);
  ~Stack();
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  // Lets the next Enter() call `entry`, which never returns.
  void Prepare(void (*entry)());
  // From the scheduler's stack to this one, and back to the scheduler.
  void Enter();
  void Leave();

 private:
  void* const memory_;
  const size_t bytes_;
  struct Machine;
  Machine* machine_;
};

}  // namespace axccl::fibers
