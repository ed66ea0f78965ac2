// The TCP state of this process: the peers, their connections, and the thread that makes progress.
//
// Threads that wait for messages poll (Progress). While none does, a thread of the library sleeps on the sockets and
// makes progress, so that messages are received and answered although the process is elsewhere. It lives as long as the
// process.
//
// To make that thread wait for the next message costs a system call, and waking it uses a core. So it does only when a
// waiting thread goes to sleep, or leaves something unsent behind. A thread that has finished does not do so: while
// operations keep coming, the library's thread only looks now and then (kDoze) whether they still do, and listens once
// they do not.
//
// Order of locks: peers_mutex_ or receiving_, then that of a peer.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/base/service_fd.h"
#include "src/base/status.h"
#include "transports/remote/address.h"
#include "transports/remote/lines.h"
#include "transports/tcp/peer.h"

namespace axccl::tcp {

class Worker final : public transport::Inbox {
 public:
  using ProcessId = Peer::ProcessId;

  // The first call makes it, for those rails of this process.
  static Result<Worker*> Get(const std::vector<remote::RailAddress>& rails);

  const std::vector<remote::RailAddress>& rails() const { return rails_; }
  // The peer of that process, which is made where there is none, or it has failed. `rails` as in Peer.
  std::shared_ptr<Peer> PeerOf(const ProcessId& process, const std::vector<uint8_t>& rails,
                               const Protection& protection);

  void Progress() override;
  void BeginPolling() override;
  void EndPolling(bool waiting) override;
  // As Progress, and makes the library's thread receive what comes next, unless a thread polls.
  void ProgressThenLeave();

  // ---- for peers, with their lock held ----
  void WantToSend(Connection* connection, bool wants);

 private:
  Worker() = default;
  Status Start(const std::vector<remote::RailAddress>& rails);
  [[noreturn]] void Main();
  void Drive();
  void Serve(Connection* connection);
  void Listen();
  void LeaveToThread();
  void Take(const remote::Lines::Key& key, service::Fd fd, const remote::LineSession& session);
  void Watch(const std::shared_ptr<Peer>& peer, uint8_t rail, service::Fd fd, const remote::LineSession& session);
  void Fail(const ProcessId& process, const std::string& why);
  bool InUse();

  std::vector<remote::RailAddress> rails_;
  service::Fd ready_;  // epoll of all connections
  service::Fd woken_;  // epoll of that one, on which the library's thread sleeps

  std::mutex peers_mutex_;
  std::map<ProcessId, std::shared_ptr<Peer>> peers_;
  // Lines of processes that have advanced further than this one: it has no peer for them yet.
  struct Early {
    service::Fd fd;
    remote::LineSession session;
  };
  std::map<remote::Lines::Key, Early> early_;

  std::mutex receiving_;
  struct Open {
    std::shared_ptr<Peer> peer;
    std::shared_ptr<Connection> connection;
  };
  std::vector<Open> connections_;
  bool listening_ = false;  // the library's thread waits for the next event; otherwise it dozes

  std::atomic<int> unsent_{0};  // connections that have something to send
  // Threads that poll, and how many began to. They do not take a lock for that, because a thread that has just been
  // woken would find it held by the thread that woke it.
  std::atomic<int> polling_{0};
  std::atomic<uint32_t> uses_{0};
};

}  // namespace axccl::tcp
