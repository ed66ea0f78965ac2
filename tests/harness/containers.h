// Containers for tests: PID namespaces of this machine, whose processes see no others and have a /proc of their own.
// They share the network, unless they also enter a host (test_hosts.h).
//
// A process of its own keeps each container alive, and ends with the test. Needs root, as hosts do. Used by the test
// process's only thread.
#pragma once

#include <sys/types.h>

#include <memory>
#include <vector>

namespace axccl::harness {

class Containers {
 public:
  // Returns null, with a GoogleTest failure, if it fails.
  static std::unique_ptr<Containers> Create(int containers);
  // Ends all processes that are in them.
  ~Containers();
  Containers(const Containers&) = delete;
  Containers& operator=(const Containers&) = delete;

  int size() const { return static_cast<int>(inits_.size()); }
  // As fork(); the child runs in the container.
  pid_t Fork(int container) const;

 private:
  Containers() = default;

  std::vector<pid_t> inits_;
};

}  // namespace axccl::harness
