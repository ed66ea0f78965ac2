// Tells that a process on another machine, or the way to it, is gone.
//
// Two processes that have ranks for each other hold a TCP connection of their own, the lifeline. It ends with the process
// at its other end. Once a second each side writes a byte, which the other side's kernel acknowledges, whatever the process
// itself is doing: one that is stopped, or starved for seconds, is not taken for dead; a machine that has not answered for
// kPatience is, and both sides find that out, as each waits for its own acknowledgements. Whoever gives the other one up
// cuts the line, so that it learns of it as soon as it can.
//
// UCX finds out only where it sends, and after its own time, which not every version lets a program set.
//
// One for the process. Lives on the service thread; its functions may be called from any thread but with the worker's lock
// only where said.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "src/base/service.h"
#include "src/base/service_acceptor.h"
#include "transports/ucx/connect.h"

namespace axccl::ucx {

class Lifelines {
 public:
  using ProcessId = std::array<uint8_t, 16>;
  static constexpr std::chrono::seconds kBeat{1};
  static constexpr std::chrono::milliseconds kPatience{2200};
  // A process that ends may have said something before, which is still on its way.
  static constexpr std::chrono::milliseconds kLastWords{50};

  struct Calls {
    std::function<void(const ProcessId&, const std::string& why)> lost;
    std::function<bool()> in_use;  // whether there is any rank to ask for
  };

  // Listens at `local` (its port does not count). The first call counts.
  static Result<Lifelines*> Get(const ProcessId& self, const sockaddr_storage& local, const Calls& calls);
  // As made by Get; null before.
  static Lifelines* Made();

  const LifelineAddress& address() const { return address_; }
  // Has a line to that process from now on. Of the two, one connects and the other one waits for it.
  Status Hold(const ProcessId& process, const LifelineAddress& address);
  // Ends the line, where there is one, and nobody here is told. May be called with the worker's lock.
  void Cut(const ProcessId& process);

 private:
  class Caller;
  struct Line {
    service::Fd fd;
    bool connected = false;
    bool ending = false;
  };

  Lifelines() = default;
  Status Start(const ProcessId& self, const sockaddr_storage& local, const Calls& calls);
  Status Connect(const ProcessId& process, const LifelineAddress& address);
  Status Adopt(const ProcessId& process, service::Fd fd, bool connected);
  void OnEvent(const ProcessId& process, uint32_t events);
  void OnConnected(const ProcessId& process);
  void End(const ProcessId& process, const std::string& why);
  void Beat();

  service::Loop* loop_ = nullptr;
  ProcessId self_{};
  LifelineAddress address_{};
  Calls calls_;
  std::unique_ptr<service::Acceptor> acceptor_;
  bool beating_ = false;             // on the service thread
  std::mutex mutex_;
  std::map<ProcessId, Line> lines_;  // changed on the service thread and under mutex_
};

}  // namespace axccl::ucx
