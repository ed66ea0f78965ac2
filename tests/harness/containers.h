// Containers for tests: PID namespaces of this machine, whose processes see no others and have a /proc of their own.
// The network is everybody's, unless they also enter a host (test_hosts.h).
//
// Each is held by a process of its own, which is all that is left to be ended; it ends with the test. Needs root, as
// hosts do. Used by the test process's only thread.
#pragma once

#include <sys/types.h>

#include <memory>
#include <vector>

namespace axccl::harness {

class Containers {
 public:
  // Null with a GoogleTest failure where it does not work.
  static std::unique_ptr<Containers> Create(int containers);
  // Ends all processes that are in them.
  ~Containers();
  Containers(const Containers&) = delete;
  Containers& operator=(const Containers&) = delete;

  int size() const { return static_cast<int>(inits_.size()); }
  // As fork(); the child lives in the container.
  pid_t Fork(int container) const;

 private:
  Containers() = default;

  std::vector<pid_t> inits_;
};

}  // namespace axccl::harness
