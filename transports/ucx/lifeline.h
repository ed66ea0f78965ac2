// Tells that a process on another machine, or the way to it, is gone.
//
// Two processes that have ranks for each other hold a TCP connection of their own, the lifeline, for each pair of their
// rails that they use. It ends with the process at its other end. Once a second each side writes a byte, which the
// other side's kernel acknowledges, whatever the process itself is doing: one that is stopped, or starved for seconds,
// is not taken for dead; a machine that has not answered for kPatience is, and both sides find that out, as each waits
// for its own acknowledgements. Whoever gives the other one up cuts the lines, so that it learns of it as soon as it
// can. One line that fails is the failure of the peer: what was sent over its rail may be lost.
//
// UCX finds out only where it sends, and after its own time, which not every version lets a program set.
//
// Of two processes, one calls; both prove who they are (line_proof.h) before the line counts for anything. A line that
// lives is never replaced: a second one between the same two is refused until the first has ended. Who is cut off
// before his line is taken, because strangers press in or the other side does not know of him yet, calls again.
//
// One for the process. Lives on the service thread; its functions may be called from any thread but with the worker's
// lock only where said.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/base/service.h"
#include "src/base/service_acceptor.h"
#include "transports/ucx/connect.h"
#include "transports/ucx/line_proof.h"

namespace axccl::ucx {

class Lifelines {
 public:
  using ProcessId = std::array<uint8_t, 16>;
  // One line to a process; `rail` is this process's own.
  struct Key {
    ProcessId process{};
    uint8_t rail = 0;

    auto operator<=>(const Key&) const = default;
  };
  static constexpr std::chrono::seconds kBeat{1};
  static constexpr std::chrono::milliseconds kPatience{2200};
  // A process that ends may have said something before, which is still on its way.
  static constexpr std::chrono::milliseconds kLastWords{50};

  struct Calls {
    std::function<void(const ProcessId&, const std::string& why)> lost;
    std::function<bool()> in_use;                   // whether there is any rank to ask for
    std::function<std::string(uint8_t rail)> name;  // of this process's rail, for those who look for the cable
  };

  // Listens at `local`, by rail (ports do not count). The first call counts.
  static Result<Lifelines*> Get(const ProcessId& self, const std::vector<sockaddr_storage>& local, const Calls& calls);
  // As made by Get; null before.
  static Lifelines* Made();

  // Of each rail, and for all of them.
  const sockaddr_storage& address(size_t rail) const { return addresses_[rail]; }
  const LineKey& public_key() const { return identity_.public_key(); }
  // Has that line from now on, to the peer's rail at `address`, who proves himself by `peer`. Of the two, one calls and
  // the other one waits for it.
  Status Hold(const Key& key, const sockaddr_storage& address, const LineKey& peer);
  // Ends the lines, where there are any, and nobody here is told. May be called with the worker's lock.
  void Cut(const ProcessId& process);
  // Whether the other side has ended one of them. With the worker's lock or without.
  bool HaveEnded(const ProcessId& process);

 private:
  class Stranger;
  // A line that this side is about to make.
  struct Call {
    sockaddr_storage address{};
    service::Clock::time_point limit;  // to be taken by
    enum { kConnecting, kGreeted, kProved } stage = kConnecting;
    LineHello hello;
    LineAnswer answer;
    size_t have = 0;     // bytes of the answer
    uint64_t timer = 0;  // until the next attempt
  };
  struct Line {
    service::Fd fd;
    std::unique_ptr<Call> call;  // null: the line stands
    bool ending = false;
    bool cut = false;
  };
  struct Known {
    LineKey key;
    LineKeys keys;
  };

  Lifelines() = default;
  Status Start(const ProcessId& self, const std::vector<sockaddr_storage>& local, const Calls& calls);
  Status Listen(uint8_t rail);
  Status Know(const ProcessId& process, const LineKey& peer);
  const LineKeys* KeysOf(const ProcessId& process) const;
  Status Dial(const Key& key);
  void OnCall(const Key& key, uint32_t events);
  bool Greet(Line* line, const ProcessId& peer);
  void CallAgain(const Key& key);
  void Adopt(const Key& key, service::Fd fd);
  void Stand(const Key& key);
  void OnEvent(const Key& key, uint32_t events);
  void EndSoon(const Key& key, const std::string& why);
  void End(const ProcessId& process, const std::string& why);
  void Beat();

  service::Loop* loop_ = nullptr;
  ProcessId self_{};
  std::vector<sockaddr_storage> addresses_;  // by rail
  LineIdentity identity_;
  std::map<ProcessId, Known> known_;  // on the service thread
  Calls calls_;
  std::vector<std::unique_ptr<service::Acceptor>> acceptors_;  // by rail
  bool beating_ = false;                                       // on the service thread
  std::mutex mutex_;
  std::map<Key, Line> lines_;  // changed on the service thread and under mutex_
};

}  // namespace axccl::ucx
